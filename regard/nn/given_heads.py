"""GivenHeads: queries, keys and values that somebody else projected, in the place of a mixer's own projections."""

import copy
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import Mixer, UnsupportedError
from regard.nn.heads import Heads


class GivenHeads(Heads):
    """Reads q, k and v out of tokens [B T (H + 2 G) K] that hold them side by side; merging puts heads side by side.

    It has no parameters: the projections around it belong to the caller.
    """

    def __init__(self, heads: Heads):
        nn.Module.__init__(self)
        self.num_heads, self.num_kv_heads = heads.num_heads, heads.num_kv_heads
        self.head_dim = heads.head_dim
        self._seen = None
        self.query = self.key = self.value = cast(nn.Linear, _Place(heads.value.weight))

    @property
    def width(self) -> int:
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim

    def pack(
        self,
        q: Float[Tensor, "B T HK"] | None,
        k: Float[Tensor, "B T GK"] | None = None,
        v: Float[Tensor, "B T GK"] | None = None,
    ) -> Float[Tensor, "B T width"]:
        """Tokens for a mixer over these heads: q, k and v; q alone; or k and v alone, as its context."""
        if q is None:
            assert k is not None and v is not None
            return F.pad(torch.cat([k, v], dim=-1), (self.num_heads * self.head_dim, 0))
        if k is None or v is None:
            return F.pad(q, (0, 2 * self.num_kv_heads * self.head_dim))
        return torch.cat([q, k, v], dim=-1)

    def queries(self, x):
        return self._part("q", x, 0, self.num_heads)

    def keys(self, x):
        return self._part("k", x, self.num_heads, self.num_kv_heads)

    def values(self, x):
        return self._part("v", x, self.num_heads + self.num_kv_heads, self.num_kv_heads)

    def merge(self, mixed):
        return self._see("heads", mixed).transpose(1, 2).flatten(2)

    def _part(self, name: str, x: Tensor, first: int, count: int) -> Tensor:
        z = x.unflatten(2, (-1, self.head_dim))[:, :, first : first + count]
        return self._see(name, z.transpose(1, 2))


class _Place(nn.Module):
    """Carries device and dtype: an empty buffer that moves with the module and is not saved."""

    weight: Tensor

    def __init__(self, like: Tensor):
        super().__init__()
        self.register_buffer("weight", like.detach().new_empty(0), persistent=False)

    def reset_parameters(self) -> None:
        """Nothing to restore; FSDP calls it on every module with a buffer."""


def with_given_heads(mixer: Mixer) -> Mixer:
    """A copy of the mixer whose tokens hold q, k and v side by side (`mixer.heads.pack`), and that projects nothing.

    Raises UnsupportedError, with the reason, for a mixer that is not a function of q, k and v.
    """
    heads = getattr(mixer, "heads", None)
    reason = None
    if not isinstance(heads, Heads):
        reason = "it is not made of queries, keys and values"
    elif heads.key is None:
        reason = "its keys are made from its queries, and those given would be ignored"
    elif mixer.beside_heads is not None:
        reason = f"it needs the tokens themselves as well, for {mixer.beside_heads}"
    if reason is not None:
        raise UnsupportedError(
            f"{mixer.name} does not support given queries, keys and values: {reason}."
        )
    given = copy.deepcopy(mixer)
    assert isinstance(heads, Heads)
    given.heads = GivenHeads(heads)
    given.dim = given.heads.width
    return given
