"""The arena's own models, and every kind of task with a mechanism that can and one that cannot."""

import re
from dataclasses import replace
from itertools import product

from regard.core import RegardError
from regard.lab import Entry, Shell
from regard.lab.experiment.question import columns
from regard.lab.experiment.trial import model_config, obstacle
from regard.lab.tasks import CorrelatedTasks, PlantedHistories, StdlibPermuted, TextFiles
from regard.lab.train import TrainConfig
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
    expected["decoder", "fnet"] = "fnet does not support causal"
    expected["cross", "fnet"] = "fnet does not support cross"
    where = "the place between decoder and encoder"
    expected["cross", "transformer_xl"] = f"transformer_xl does not support {where}"
    kinds = {"stdlib_permuted": "permutation_language_model", "correlated_tasks": "vectors"}
    for task, name in product(kinds, ("softmax", "fnet", "gau", "transformer_xl")):
        expected[task, name] = f"{task} is of kind {kinds[task]}"
    assert refused == expected


def test_only_the_place_that_is_compared_has_the_mechanism():
    for column in columns(TextFiles(vocab_size=300), TRAIN):
        config = model_config(column, Entry(mixer="linear"))
        mixers = {"encoder": config.mixer, "decoder": config.decoder_mixer}
        mixers["cross"] = config.cross_mixer
        assert [place for place, mixer in mixers.items() if mixer == "linear"] == [column.place]
    assert columns(CorrelatedTasks(), TRAIN)[0].name == "correlated_tasks"
