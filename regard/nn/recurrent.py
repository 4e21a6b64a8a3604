"""Parts of recurrent mixers: the short convolution before queries, keys and values (arXiv 2302.10866), and decays (arXiv 2405.21060)."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import Tokens
from regard.functional.rows import apart, ranged
from regard.nn.starts import projection, uniform, unset


class ShortConv(nn.Module):
    """y_t = silu(b + sum_s w_s x_(t - size + 1 + s)) in each channel; before the first token there are zeros.

    Started as torch's convolutions are: uniform within 1 / sqrt(size).
    """

    def __init__(self, channels: int, size: int, *, bias: bool):
        super().__init__()
        self.size = size
        self.weight = unset(channels, size)
        self.bias = unset(channels) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            uniform(parameter, self.size)

    def forward(
        self, x: Float[Tensor, "B T C"], before: Float[Tensor, "B taps C"] | None = None
    ) -> Float[Tensor, "B T C"]:
        """before: the inputs of the last tokens (None: there were none)."""
        T, last = x.shape[1], self.size - 1
        x = F.pad(x, (0, 0, last, 0)) if before is None else torch.cat([before, x], 1)
        y = self.weight[:, 0] * x[:, :T]
        for s in range(1, self.size):
            y = torch.addcmul(y, self.weight[:, s], x[:, s : s + T])
        return F.silu(y if self.bias is None else y + self.bias)


class Decay(nn.Module):
    """log a = -exp(A) step,   step = softplus(W x + c), of each head, or of each channel of its keys.

    W is of full rank, or of `rank`. exp(A), one number a head, starts uniform in `rates`, softplus(c) log-uniform in [0.001, 0.1].
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        channels: int = 1,
        rank: int | None = None,
        rates: tuple[float, float] = (1e-4, 16.0),
    ):
        super().__init__()
        self.rates = rates
        self.channels = channels
        self.project = projection(dim, num_heads * channels, rank)
        self.A_log = unset(num_heads)
        self.bias = unset(num_heads * channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.A_log.uniform_(*self.rates).log_()
            step = self.bias.uniform_(math.log(0.001), math.log(0.1)).exp_()
            step += torch.log(-torch.expm1(-step))  # softplus(bias) = step

    def forward(self, x: Tokens) -> tuple[Float[Tensor, "B H T R"], Float[Tensor, "B H T R"]]:
        """log a and the steps; R channels."""
        step = apart(-F.logsigmoid(*ranged(-(self.project(x) + self.bias))), self.channels)
        return -self.A_log.exp()[:, None, None] * step, step
