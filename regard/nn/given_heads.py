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
    """Reads q, k and v out of tokens [B T (H K + G K + G V)] that hold them side by side; merging puts heads side by side.

    It has no parameters: the projections around it belong to the caller.
    """

    def __init__(self, heads: Heads):
        nn.Module.__init__(self)
        for name in ("num_heads", "num_kv_heads", "head_dim", "key_dim", "value_dim"):
            setattr(self, name, getattr(heads, name))
        self.copies, self.shared_by, self.alike = heads.copies, heads.shared_by, heads.alike
        self.rotation = heads.rotation
        q, k = self.num_heads * self.key_dim, self.num_kv_heads * self.key_dim
        like, v = heads.value.weight, self.num_kv_heads * self.value_dim
        parts = _Part(like, 0, q), _Part(like, q, k), _Part(like, q + k, v)
        self.query, self.key, self.value = cast(tuple[nn.Linear, nn.Linear, nn.Linear], parts)
        self.out, self.width = cast(nn.Linear, nn.Identity()), q + k + v

    def pack(
        self,
        q: Float[Tensor, "B T HK"] | None,
        k: Float[Tensor, "B T GK"] | None = None,
        v: Float[Tensor, "B T GV"] | None = None,
    ) -> Float[Tensor, "B T width"]:
        """Tokens for a mixer over these heads: q, k and v; q alone; or k and v alone, as its context."""
        if q is None:
            assert k is not None and v is not None
            return F.pad(torch.cat([k, v], dim=-1), (self.num_heads * self.key_dim, 0))
        if k is None or v is None:
            return F.pad(q, (0, self.width - q.shape[2]))
        return torch.cat([q, k, v], dim=-1)


class _Part(nn.Module):
    """Some channels of the tokens. Its weight, an empty buffer that moves with the module and is not saved, has device and dtype."""

    weight: Tensor

    def __init__(self, like: Tensor, first: int, width: int):
        super().__init__()
        self.first, self.width = first, width
        self.register_buffer("weight", like.detach().new_empty(width, 0), persistent=False)

    def forward(self, x: Float[Tensor, "B T width"]) -> Float[Tensor, "B T part"]:
        return x[..., self.first : self.first + self.width]

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
