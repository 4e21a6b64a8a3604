"""Parts of the gated attention unit (Hua et al. 2022, arXiv 2202.10447), shared by GAU and FLASH."""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core import OtherTokens, Positions, Tokens, check_even
from regard.functional.positions.rotary import rotate
from regard.nn.starts import Glorot, glorot, unset

# The paper starts at 0.02 with scores divided by a length. Scores that no length makes small learn far sooner from 1: on
# associative recall (T 47, two causal GAU layers, 1,000 steps of AdamW) the loss is 0.001 for three seeds from 1, and 1.7
# and 2.1 for two seeds from 0.02.
VIEW_STD = {"paper": 0.02, "visible": 1.0, "ns": 1.0}

Views = Float[Tensor, "B n T K"]
RelativeForm = Literal["rotary", "toeplitz"] | None


class OffsetScale(nn.Module):
    """Views of one tensor, each with its own scale and offset per channel: z [B T K] -> [B n T K], z gamma_i + beta_i; gamma ~ N(0, std^2), beta = 0."""

    def __init__(self, dim: int, views: int, *, std: float):
        super().__init__()
        self.std = std
        self.gamma = unset(views, dim)
        self.beta = unset(views, dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.gamma, std=self.std)
        nn.init.zeros_(self.beta)

    def forward(self, z: Float[Tensor, "B T K"]) -> Views:
        return torch.addcmul(self.beta[:, None], z[:, None], self.gamma[:, None])


class GatedUnit(nn.Module):
    """y = (silu(x W_u) * mixed) W_out around mixed values silu(x W_v), with `views` of z = silu(x W_z).

    Projections start from Glorot, where public code starts at N(0, 0.02^2), which learns later.
    """

    def __init__(
        self, dim: int, hidden_dim: int, key_dim: int, views: int, *, std: float, bias: bool
    ):
        super().__init__()
        check_even(key_dim=key_dim)
        self.hidden_dim = hidden_dim
        self.key_dim = key_dim
        self.gate = Glorot(dim, hidden_dim, bias=bias)
        self.value = Glorot(dim, hidden_dim, bias=bias)
        self.shared = Glorot(dim, key_dim, bias=bias)
        self.offset_scale = OffsetScale(key_dim, views, std=std)
        self.out = Glorot(hidden_dim, dim, bias=bias)
        glorot(self)

    def views(self, x: Tokens) -> Views:
        return self.offset_scale(F.silu(self.shared(x)))

    def values(self, x: OtherTokens) -> Float[Tensor, "B 1 S F"]:
        return F.silu(self.value(x))[:, None]

    def merge(self, x: Tokens, mixed: Float[Tensor, "B 1 T F"]) -> Tokens:
        return self.out(F.silu(self.gate(x)) * mixed[:, 0])


class RelativeBias(nn.Module):
    """Adds b_ij, a function of j - i, to a product of queries and keys.

    "rotary": rope(a)_i rope(b)_j with learned a, b, as further channels of q and k; for any length.
    "toeplitz": one learned number per distance below `reach`. None: nothing.
    """

    def __init__(self, form: RelativeForm, key_dim: int, reach: int | None):
        super().__init__()
        self.form = form
        self.width = 2 * key_dim if form == "rotary" else key_dim
        if form == "rotary":
            self.weight = unset(2, key_dim)
        if form == "toeplitz":
            assert reach is not None
            self.weight = unset(2 * reach - 1)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.form is not None:
            nn.init.normal_(self.weight, std=0.02)

    def turned(
        self, views: Views, position: Positions, scale: float
    ) -> list[Float[Tensor, "B 1 T _"]]:
        """The views, each turned by its positions.

        The first is of queries, times `scale`, the second of keys, and both have further channels; others have none.
        """
        if self.form != "rotary":
            q, *others = rotate(views, position).split(1, 1)
            return [q * scale, *others]
        learned = self.weight[:, None].type_as(views).expand(views.shape[0], -1, *views.shape[2:])
        a, b, q, k, *others = rotate(torch.cat([learned, views], 1), position).split(1, 1)
        return [torch.cat([q * scale, a], -1), torch.cat([k, b], -1), *others]

    def at(self, ahead: Int[Tensor, "*b"]) -> Float[Tensor, "*b"] | None:
        """The Toeplitz bias, which is not in the channels, of keys so far ahead of their queries."""
        if self.form != "toeplitz":
            return None
        middle = self.weight.shape[0] // 2
        return self.weight[(ahead + middle).clamp(0, 2 * middle)]
