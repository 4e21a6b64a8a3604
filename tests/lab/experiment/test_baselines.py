"""Questions of the articles, and the mixers and the model of their own."""

import json
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
import torch

from questions._mixers import Convolution
from questions._models import ReaderConfig
from regard import Mask
from regard.lab.experiment.baselines import Gru
from regard.lab.experiment.trial import model_config
from regard.testing import check_mixer

ROOT = Path(__file__).parents[3]
FILES = sorted(path for path in (ROOT / "questions").glob("[a-z]*.py"))
KNOWN = {
    one["claim"] for one in json.loads((ROOT / "docs/findings/claims.json").read_text())["claims"]
}


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
    questions = [import_module(f"questions.{path.stem}").QUESTION for path in FILES]
    assert len({claim.text for one in questions for claim in one.claims} & KNOWN) >= 50
