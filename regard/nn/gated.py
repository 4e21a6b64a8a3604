"""Parts of the gated attention unit (Hua et al. 2022, arXiv 2202.10447), shared by GAU and FLASH."""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.errors import OptionError
from regard.core.shapes import check_positive
from regard.functional.positions.rotary import rotate
from regard.nn.starts import Glorot, glorot

# The paper starts at 0.02 with scores divided by a length. Scores that no length makes small learn far sooner from 1: on
# associative recall (T 47, two causal GAU layers, 1,000 steps of AdamW) the loss is 0.001 for three seeds from 1, and 1.7
# and 2.1 for two seeds from 0.02.
VIEW_STD = {"paper": 0.02, "visible": 1.0, "ns": 1.0}

RelativeForm = Literal["rotary", "toeplitz"] | None


class OffsetScale(nn.Module):
    """Views of one tensor, each with its own scale and offset per channel: z [B T K] -> [B n T K], z gamma_i + beta_i; gamma ~ N(0, std^2), beta = 0."""

    def __init__(self, dim: int, views: int, *, std: float):
        super().__init__()
        self.std = std
        self.gamma = nn.Parameter(torch.empty(views, dim))
        self.beta = nn.Parameter(torch.empty(views, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.gamma, std=self.std)
        nn.init.zeros_(self.beta)

    def forward(self, z: Float[Tensor, "B T K"]) -> Float[Tensor, "B n T K"]:
        return torch.addcmul(self.beta[:, None], z[:, None], self.gamma[:, None])


class GatedUnit(nn.Module):
    """y = (silu(x W_u) * mixed) W_out around mixed values silu(x W_v), with `views` of z = silu(x W_z).

    Projections start from Glorot, where public code starts at N(0, 0.02^2), which learns later.
    """

    def __init__(
        self, dim: int, hidden_dim: int, key_dim: int, views: int, *, std: float, bias: bool
    ):
        super().__init__()
        check_positive(hidden_dim=hidden_dim, key_dim=key_dim)
        if key_dim % 2:
            raise OptionError(
                f"key_dim ({key_dim}) must be even: rotary positions turn channels in pairs"
            )
        self.hidden_dim, self.key_dim = hidden_dim, key_dim
        self.gate = Glorot(dim, hidden_dim, bias=bias)
        self.value = Glorot(dim, hidden_dim, bias=bias)
        self.shared = Glorot(dim, key_dim, bias=bias)
        self.offset_scale = OffsetScale(key_dim, views, std=std)
        self.out = Glorot(hidden_dim, dim, bias=bias)
        glorot(self.gate, self.value, self.shared, self.out)

    def views(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B n T K"]:
        return self.offset_scale(F.silu(self.shared(x)))

    def values(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B 1 S F"]:
        return F.silu(self.value(x))[:, None]

    def merge(
        self, x: Float[Tensor, "B T D"], mixed: Float[Tensor, "B 1 T F"]
    ) -> Float[Tensor, "B T D"]:
        return self.out(F.silu(self.gate(x)) * mixed[:, 0])


class RelativeBias(nn.Module):
    """Adds b_ij, a function of j - i, to a product of queries and keys.

    "rotary": rope(a)_i rope(b)_j with learned a, b, as further channels of q and k; for any length.
    "toeplitz": one learned number per distance below `reach`. None: nothing.
    """

    def __init__(self, form: RelativeForm, key_dim: int, reach: int | None):
        super().__init__()
        if form not in ("rotary", "toeplitz", None):
            raise OptionError(f"relative_bias must be 'rotary', 'toeplitz' or None, got {form!r}")
        self.form = form
        self.width = 2 * key_dim if form == "rotary" else key_dim
        if form == "rotary":
            self.weight = nn.Parameter(torch.empty(2, key_dim))
        if form == "toeplitz":
            assert reach is not None
            self.weight = nn.Parameter(torch.empty(2 * reach - 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.form is not None:
            nn.init.normal_(self.weight, std=0.02)

    def query(
        self, q: Float[Tensor, "B T K"], position: Int[Tensor, "b T"]
    ) -> Float[Tensor, "B 1 T K2"]:
        return self._widened(q, position, 0)

    def key(
        self, k: Float[Tensor, "B S K"], position: Int[Tensor, "b S"]
    ) -> Float[Tensor, "B 1 S K2"]:
        return self._widened(k, position, 1)

    def pair(
        self, views: Float[Tensor, "B n T K"], position: Int[Tensor, "b T"], scale: float
    ) -> list[Float[Tensor, "B 1 T _"]]:
        """Turned views of tokens, all at once: queries times `scale`, keys, and any others, without further channels."""
        if self.form != "rotary":
            q, k, *others = rotate(views, position).split(1, dim=1)
            return [q * scale, k, *others]
        B, _, T, K = views.shape
        learned = self.weight[:, None].to(views.dtype).expand(B, 2, T, K)
        turned = rotate(torch.cat([learned, views], dim=1), position)
        a, b, q, k, *others = turned.split(1, dim=1)
        return [torch.cat([q * scale, a], dim=-1), torch.cat([k, b], dim=-1), *others]

    def square(self, n: int) -> Float[Tensor, "n n"] | None:
        """b_ij of n tokens in a row, for any place of the first."""
        if self.form is None:
            return None
        position = torch.arange(n, device=self.weight.device)
        if self.form == "rotary":
            left, right = rotate(self.weight[:, None].expand(-1, n, -1), position)
            return left @ right.mT
        rows = self.table(position[None], position[None])
        assert rows is not None
        return rows(slice(0, n))[0, 0]

    def _widened(self, z: Tensor, position: Tensor, side: int) -> Tensor:
        if self.form == "rotary":
            turned = rotate(self.weight[side].expand(*position.shape, -1), position)
            z = torch.cat([z, turned.to(z.dtype).expand(z.shape[0], -1, -1)], dim=-1)
        return z[:, None]

    def table(
        self, query: Int[Tensor, "#b T"], key: Int[Tensor, "#b S"]
    ) -> Callable[[slice], Tensor] | None:
        """The Toeplitz bias, which is not in the channels: rows -> [b 1 t S] for these queries."""
        if self.form != "toeplitz":
            return None

        def rows(queries: slice) -> Tensor:
            middle = self.weight.shape[0] // 2
            distance = key[:, None, :] - query[:, queries, None] + middle
            return self.weight[distance.clamp(0, 2 * middle)][:, None]

        return rows
