"""Models of the arena and of the articles: every kind of task has one or the reason why not, and the questions have theirs."""

import json
import re
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path

import pytest
import torch

from questions._mixers import Convolution
from questions._models import ReaderConfig
from regard import Mask
from regard.core import OptionError, RegardError
from regard.lab import Entry, Shell
from regard.lab.experiment.baselines import Gru
from regard.lab.experiment.question import columns
from regard.lab.experiment.trial import model_config, obstacle
from regard.lab.tasks import CorrelatedTasks, PlantedHistories, StdlibPermuted, TextFiles
from regard.lab.train import TrainConfig
from regard.testing import check_mixer
from tests.lab.experiment.tiny import few_modules, few_pairs

TRAIN = TrainConfig(steps=1, batch_size=4, eval_every=1, checkpoint_every=1)


def test_every_kind_of_task_has_a_loss_or_the_reason_why_not(tmp_path, monkeypatch):
    few_modules(monkeypatch)
    sizes = {"train_size": 16, "valid_size": 16, "test_size": 16}
    tasks = [CorrelatedTasks(dim=5, **sizes), PlantedHistories(history=4, **sizes)]
    tasks += [StdlibPermuted(length=12, valid_size=2, test_size=2), few_pairs(tmp_path)]
    refused, softmax = {}, Entry(mixer="softmax")
    for column in (one for task in tasks for one in columns(task, TRAIN)):
        column, splits = replace(column, shell=Shell(dim=32)), column.task.load()
        for entry in (Entry(mixer=name) for name in ("softmax", "fnet", "gau", "transformer_xl")):
            what = column.name.removeprefix(f"text_files ({tmp_path.name}), ")
            if reason := obstacle(column, entry, splits):
                refused[what, entry.name] = re.split(r":|, and", reason)[0]
                continue
            try:
                config = model_config(column, entry, splits, beside=softmax)
            except RegardError as error:
                refused[what, entry.name] = str(error).split(":")[0]
                continue
            batch = column.task.collate([splits.train[row] for row in range(4)])
            assert column.task.loss(config.build(), batch).isfinite()
    expected = {(place, "gau"): "decoder" for place in ("decoder", "cross")}
    where = {"fnet": "cross", "transformer_xl": "the place between decoder and encoder"}
    expected |= {("cross", name): f"{name} does not support {of}" for name, of in where.items()}
    expected["decoder", "fnet"] = "fnet does not support causal"
    kinds = {"stdlib_permuted": "permutation_language_model", "correlated_tasks": "vectors"}
    for task, name in product(kinds, ("softmax", "fnet", "gau", "transformer_xl")):
        expected[task, name] = f"{task} is of kind {kinds[task]}"
    assert refused == expected


def test_only_the_place_that_is_compared_has_the_mechanism():
    for column in columns(TextFiles(vocab_size=300), TRAIN):
        taken = "mixer" if column.place == "encoder" else f"{column.place}_mixer"
        shell = replace(column.shell, fields={taken: "softmax"})
        with pytest.raises(OptionError, match=f"{taken} is told by the entry"):
            model_config(replace(column, shell=shell), Entry(mixer="linear"))
        with pytest.raises(OptionError, match="vocab_size is told by the entry or the task"):
            model_config(column, Entry(mixer="linear", model={"vocab_size": 9}))
        config = model_config(column, Entry(mixer="linear"))
        at = {"encoder": config.mixer, "decoder": config.decoder_mixer, "cross": config.cross_mixer}
        assert [place for place, mixer in at.items() if mixer == "linear"] == [column.place]
    assert columns(CorrelatedTasks(), TRAIN)[0].name == "correlated_tasks"


ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "questions").glob("[a-z]*.py"))


@pytest.mark.parametrize("baseline", [Gru, partial(Convolution, size=3)])
def test_a_baseline_keeps_the_laws(baseline):
    laws = ("causality", "padding", "packed", "poison", "batch", "isolation", "derivative")
    check_mixer(lambda: baseline(24), laws)


def test_a_convolution_reads_so_many_tokens():
    x = torch.randn(1, 9, 8, requires_grad=True)
    y = Convolution(8, size=3)(x, mask=Mask(causal=True))
    (gradient,) = torch.autograd.grad(y[0, 6].sum(), x)
    assert gradient[0].any(-1).nonzero().flatten().tolist() == [4, 5, 6]


def test_a_reader_answers_every_token():
    config = ReaderConfig(vocab_size=9, num_classes=3, dim=16, num_heads=2, position="none")
    assert config.build()(torch.ones(2, 5, dtype=torch.long)).shape == (2, 5, 3)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_question_is_named_by_its_file_and_short_and_its_entries_have_models(path: Path):
    question = import_module(f"questions.{path.stem}").QUESTION
    assert question.name == path.stem and question.kind == "comparison" and len(question.limits) > 1
    assert len(path.read_text().splitlines()) <= 120 and str(path.stem) in path.read_text()[:400]
    assert all(claim.smallest > 0 for claim in question.claims)
    for column in question.trained:
        read = column.task.kind in ("table", "vectors")
        splits = column.task.load() if read else None
        for entry in question.entries:
            config = model_config(column, entry, splits)
            with torch.device("meta"):
                assert isinstance(config.build(), torch.nn.Module), entry.label


def test_the_known_claims_are_asked_in_their_words():
    known = json.loads((ROOT / "docs/findings/claims.json").read_text())["claims"]
    questions = [import_module(f"questions.{path.stem}").QUESTION for path in FILES]
    asked = {claim.text for question in questions for claim in question.claims}
    assert len(asked & {one["claim"] for one in known}) >= 50
