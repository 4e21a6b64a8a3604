"""A model and a task small enough to train in a blink."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from regard import Mask, build
from regard.core import existing
from regard.lab.data.records import Examples, Ragged
from regard.lab.tasks import Splits
from regard.lab.tasks.task import Classify
from regard.lab.train import TrainConfig

CONFIG = TrainConfig(
    steps=40, batch_size=8, lr=1e-2, eval_every=10, checkpoint_every=7, log_every=5, log_dir=None
)


class Majority(Classify):
    """Which of the tokens 1 and 2 is seen more often; with a loss and a score of its own."""

    name, vocab_size, num_classes, max_len = "majority", 3, 2, 9

    def load(self) -> Splits:
        return Splits(self._items(100, 0), self._items(40, 1), self._items(40, 2))

    def _items(self, size: int, seed: int) -> Examples:
        draw = torch.Generator().manual_seed(seed)
        lengths = 2 * torch.randint(2, 5, (size,), generator=draw) + 1
        rows = [torch.randint(1, 3, (int(length),), generator=draw) for length in lengths]
        label = [int((row == 2).sum() * 2 > len(row)) for row in rows]
        return Examples(Ragged.of(rows), np.array(label))

    def loss(self, model, batch):
        return F.cross_entropy(self.answer(model, batch), batch["labels"])

    def score(self, model, batches):
        right = [(self.answer(model, b).argmax(1) == b["labels"]).float() for b in batches]
        return torch.cat(right).mean().item()


class TinyModel(nn.Module):
    def __init__(self, mixer: nn.Module | None = None, dim: int = 8):
        super().__init__()
        self.embed = nn.Embedding(3, dim)
        self.mixer = mixer or build("softmax", dim=dim, num_heads=2)
        self.dropout = nn.Dropout(0.2)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 2)

    def forward(self, tokens, *, valid=None):
        x = self.embed(tokens)
        x = self.norm(x + self.dropout(self.mixer(x, mask=Mask(valid=valid))))
        valid = existing(tokens, valid)
        return self.head((x * valid[..., None]).sum(1) / valid.sum(1, keepdim=True))


def tiny_model(seed: int = 0) -> TinyModel:
    torch.manual_seed(seed)
    return TinyModel()
