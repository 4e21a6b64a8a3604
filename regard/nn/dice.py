"""Dice (Zhou et al. 2018, arXiv 1706.06978): a PReLU with a smooth step at the mean of the data.

    f(s) = p s + (1 - p) alpha s,   p = sigmoid((s - E[s]) / sqrt(Var[s] + eps))

for each channel, alpha 0 at the start. E and Var are of the batch in training, and moving averages in evaluation, as in
batch normalisation without its affine part. With E = 0 and Var -> 0 it is PReLU with slope alpha.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.core import UnsupportedError, clear, existing
from regard.functional.rows import ranged
from regard.nn.starts import unset

EPS, MOMENTUM = 1e-8, 0.1


class Dice(nn.Module):
    """s [.. F] -> [.. F]; statistics are taken over the positions that are `valid` [..] (default: all)."""

    mean: Tensor
    variance: Tensor

    def __init__(self, dim: int):
        super().__init__()
        self.alpha = unset(dim)
        self.register_buffer("mean", torch.empty(dim))
        self.register_buffer("variance", torch.empty(dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.alpha)
        nn.init.zeros_(self.mean)
        nn.init.ones_(self.variance)

    def forward(
        self, s: Float[Tensor, "*b F"], valid: Bool[Tensor, "*b"] | None = None
    ) -> Float[Tensor, "*b F"]:
        (wide,) = ranged(s)
        mean, variance = self.mean, self.variance
        if self.training:
            mean, variance = self._statistics(wide, valid)
        p = torch.sigmoid((wide - mean) * torch.rsqrt(ranged(variance)[0] + EPS)).type_as(s)
        return p * s + (1 - p) * self.alpha * s

    def _statistics(self, s: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        if torch._C._are_functorch_transforms_active():
            raise UnsupportedError(
                "Dice in training keeps statistics, which torch.func cannot carry. Call eval() first"
            )
        valid = existing(s[..., 0], valid)
        rows = clear(s, valid).reshape(-1, s.shape[-1])
        exists = valid.reshape(-1, 1).type_as(s)
        count = exists.sum()
        mean = rows.sum(0) / count.clamp_min(1)
        variance = (exists * (rows - mean).square()).sum(0) / count.clamp_min(1)
        # Within a backward, gradient checkpointing recomputes a forward that has been counted.
        if torch.compiler.is_compiling() or torch._C._current_graph_task_id() == -1:
            with torch.no_grad():
                step = MOMENTUM * (count > 0).type_as(self.mean)
                unbiased = variance * count / (count - 1).clamp_min(1)
                self.mean.lerp_(mean.type_as(self.mean), step)
                self.variance.lerp_(unbiased.type_as(self.variance), step)
        return mean, variance
