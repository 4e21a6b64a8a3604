"""A model and a task small enough to train in a blink."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard import Mask, build
from regard.lab.tasks.task import padded
from regard.lab.train import TrainConfig

CONFIG = TrainConfig(
    steps=40, batch_size=8, lr=1e-2, eval_every=10, checkpoint_every=7, log_every=5, log_dir=None
)


class Splits(NamedTuple):
    train: list[dict[str, Tensor]]
    valid: list[dict[str, Tensor]]
    test: list[dict[str, Tensor]]
    sha256: str = "0" * 64
    notes: dict[str, str] = {}


class Items(list):
    @property
    def lengths(self):
        return torch.tensor([len(item["tokens"]) for item in self])


class Majority:
    """Which of the tokens 1 and 2 is seen more often."""

    name, kind, metric, better = "majority", "classify", "accuracy", "higher"
    read_as = staticmethod(lambda splits: "")

    def load(self) -> Splits:
        return Splits(self._items(100, 0), self._items(40, 1), self._items(40, 2))

    def _items(self, size: int, seed: int) -> list[dict[str, Tensor]]:
        draw = torch.Generator().manual_seed(seed)
        lengths = 2 * torch.randint(2, 5, (size,), generator=draw) + 1
        rows = [torch.randint(1, 3, (int(length),), generator=draw) for length in lengths]
        return Items(
            {"tokens": row, "label": ((row == 2).sum() * 2 > len(row)).long()} for row in rows
        )

    def collate(self, items):
        tokens, _ = padded([item["tokens"] for item in items])
        labels = torch.stack([item["label"] for item in items])
        return {"tokens": tokens, "valid": tokens > 0, "labels": labels}

    def count(self, batch):
        return int(batch["valid"].sum())

    def answer(self, model, batch):
        return model(batch["tokens"], valid=batch["valid"])

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
        return self.head((x * valid[..., None]).sum(1) / valid.sum(1, keepdim=True))


def tiny_model(seed: int = 0) -> TinyModel:
    torch.manual_seed(seed)
    return TinyModel()
