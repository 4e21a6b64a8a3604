"""Two mixers that are lines to compare with, with the parameters of softmax attention, 4 D^2.

    unmixed   y_i = W_out W_v x_i                    each token alone
    bag       y_i = W_out mean_j (W_v x_j)           all tokens that i may see, alike

W_v makes 2 D channels. What does not pass both lines has shown no attention.
"""

from typing import Any

import torch

from regard.core import Capabilities, Mixer, No, Observation
from regard.lab.experiment.entry import Entry
from regard.nn.starts import Glorot, glorot


class _Line(Mixer):
    family = "score-free"
    paper = "none"

    def __init__(self, dim: int):
        super().__init__(dim)
        self.value = Glorot(dim, 2 * dim)
        self.out = Glorot(2 * dim, dim)
        glorot(self)


_UNSEEING = No("no token sees another")
_LIKE = No("it is a line to compare with")
_ALIKE: dict[str, Any] = dict(causal=True, streaming=_LIKE, positions=frozenset({"absolute"}), time="T D", memory="T D")  # fmt: skip


class Unmixed(_Line):
    name = "unmixed"
    capabilities = Capabilities(
        pairwise=_UNSEEING, global_tokens=_UNSEEING, cross=_UNSEEING, attention_map=True, **_ALIKE
    )

    def mix(self, x, context, mask):
        return self.out(self.value(x))

    def _observe(self, x, context, mask):
        v = self.value(x)[:, None]
        weights = torch.eye(x.shape[1], dtype=x.dtype, device=x.device).expand(len(x), 1, -1, -1)
        return Observation(v=v, weights=weights, heads=v)


class Bag(_Line):
    name = "bag"
    capabilities = Capabilities(
        pairwise=No("it sums tokens before any of them is asked"),
        global_tokens=True,
        cross=_LIKE,
        attention_map=_LIKE,
        **_ALIKE,
    )

    def mix(self, x, context, mask):
        v = self.value(x)
        T = x.shape[1]
        if mask.causal:
            count = torch.arange(1, T + 1, dtype=v.dtype, device=v.device)[:, None]
            return self.out(v.cumsum(1) / count)
        count = T if mask.valid is None else mask.valid.sum(1)[:, None, None].clamp(min=1)
        return self.out((v.sum(1, keepdim=True) / count).expand_as(v))


LINES = (Entry(mixer=Unmixed, title="no mixing"), Entry(mixer=Bag, title="the bag"))
"""Entries of every trained column, beside chance."""
