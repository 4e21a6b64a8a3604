"""Packing: fewer rows, the same loss, gradients and weights; refused where documents would be mixed or nothing is saved."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from regard import Mask, OptionError, build
from regard.lab.data.records import IGNORED, Examples, Ragged
from regard.lab.tasks.task import Splits, Task
from regard.lab.train import TrainConfig, fit
from regard.lab.train.batches import packed
from regard.models import LanguageModelConfig
from tests.lab.train.tiny import Majority, tiny_model

EVERY = {"eval_every": 3, "checkpoint_every": 3, "log_every": 1}
CONFIG = TrainConfig(steps=3, batch_size=16, lr=1e-2, log_dir=None, **EVERY)
SIZE = 7


class Texts(Task):
    """The next token of texts of 1 to 12 tokens; the first is the place of nothing."""

    name = "texts"
    kind: ClassVar[str] = "language_model"
    baseline = "none"
    vocab_size = SIZE
    longest: int = 12
    shortest: int = 1

    def load(self) -> Splits:
        rng = np.random.default_rng(self.seed)
        lengths = rng.integers(self.shortest, self.longest + 1, 48)
        tokens = rng.integers(1, SIZE, lengths.sum())
        labels = np.where(rng.random(len(tokens)) < 0.1, IGNORED, (tokens * 3 + 1) % SIZE)
        part = Examples(Ragged(tokens, lengths), Ragged(labels, lengths))
        return Splits(part, part, part)

    def loss(self, model, batch):  # in float64, where the task's own is in float32
        logits = self.answer(model, batch).flatten(0, 1)
        return F.cross_entropy(logits, batch["labels"].flatten(), ignore_index=IGNORED)


class Model(nn.Module):
    def __init__(self, name: str = "softmax"):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(SIZE, 24), nn.Linear(24, SIZE)
        self.mixer = build(name, dim=24, num_heads=3, max_len=12)

    def forward(self, tokens, *, valid=None, documents=None):
        mask = Mask(True, valid=valid, documents=documents)
        return self.head(self.mixer(self.embed(tokens), mask=mask))


class Deaf(Model):
    def forward(self, tokens, *, valid=None):
        return super().forward(tokens, valid=valid)


class Own(Texts):
    def answer(self, model, batch):
        return model(batch["tokens"], valid=batch["valid"])


@pytest.mark.parametrize("name", ["softmax", "linear", "gated_delta", "local"])
def test_a_packed_batch_has_the_loss_and_the_gradients_of_the_batch(name):
    task, model = Texts(), Model(name).double()
    items = [task.load().train[i] for i in range(16)]
    batch, rows = task.collate(items), packed(task.collate, items)
    assert len(rows["tokens"]) < len(items) and rows["tokens"].shape[1] == batch["tokens"].shape[1]
    assert task.count(rows) == task.count(batch)
    found = []
    for one in (batch, rows, {k: x for k, x in rows.items() if k != "documents"}):
        loss = task.loss(model, one)
        found.append((loss, torch.autograd.grad(loss, list(model.parameters()))))
    torch.testing.assert_close(found[1], found[0], rtol=1e-10, atol=1e-12)
    assert abs(found[2][0] - found[0][0]) > 1e-4  # documents that see each other


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary"])
def test_a_packed_run_ends_with_the_weights_of_the_run(tmp_path, position):
    sizes = {"vocab_size": SIZE, "dim": 24, "num_heads": 3, "num_layers": 2, "max_len": 12}
    ends = []
    for packing in (False, True):
        torch.manual_seed(0)
        model = LanguageModelConfig(**sizes, position=position).build().double()
        rows = []
        model.register_forward_pre_hook(lambda m, args, rows=rows: rows.append(len(args[0])))
        config = replace(CONFIG, packing=packing, workers=int(packing))
        result = fit(model, Texts(), config, tmp_path / str(packing), progress=False)
        losses = [loss for _, loss in result.losses]
        ends.append((model.state_dict(), losses, result.tokens, rows[:3]))
    torch.testing.assert_close(ends[1][0], ends[0][0], rtol=1e-8, atol=1e-8)
    assert ends[1][1] == pytest.approx(ends[0][1], rel=1e-6) and ends[0][2] == ends[1][2]
    assert ends[0][3] == [16] * 3 and max(ends[1][3]) < 14


@pytest.mark.parametrize(("task", "model", "why"), [
    (Majority(), tiny_model(), r"majority \(classify\) has no loss of each token of one sequence"),
    (Texts(), Deaf(), "Deaf takes no documents, so that those of a row would be mixed"),
    (Own(), Model(), "texts has an answer or collate of its own, which may not pass documents on"),
    (Texts(shortest=12), Model(), "the items of texts are of one length, and nothing is padding"),
])  # fmt: skip
def test_what_cannot_be_packed_is_refused(tmp_path, task, model, why):
    with pytest.raises(OptionError, match=f"fit does not pack: {why}"):
        fit(model, task, replace(CONFIG, packing=True), tmp_path, progress=False)
