"""Queries, keys and values that somebody else projected, in the place of a mixer's own projections."""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import Mixer, OptionError, UnsupportedError
from regard.nn.heads import Heads


def with_given_heads(mixer: Mixer) -> Mixer:
    """A copy of the mixer whose tokens [B T (H K + G K + G V)] hold q, k and v side by side (`packed`), and that projects nothing.

    Raises UnsupportedError, with the reason, for a mixer that is not a function of q, k and v.
    """
    heads = getattr(mixer, "heads", None)
    reason = None
    if not isinstance(heads, Heads):
        reason = "it is not made of queries, keys and values"
    elif heads.key is None:
        reason = "its keys are made from its queries, and those given would be ignored"
    elif heads.query.bias is not None:
        reason = "its projections have biases, which are added where heads are projected"
    elif mixer.beside_heads is not None:
        reason = f"it needs the tokens themselves as well, for {mixer.beside_heads}"
    if reason is not None:
        raise UnsupportedError(
            f"{mixer.name} does not support given queries, keys and values: {reason}."
        )
    given = copy.deepcopy(mixer)
    parts: Any = given.heads
    given.dim = 0
    given._mixed_width = parts.out.in_features
    for name in ("query", "key", "value"):
        part = _Part(getattr(parts, name).weight, given.dim)
        setattr(parts, name, part)
        given.dim += len(part.weight)
    parts.out = nn.Identity()
    return given


def packed(
    mixer: Mixer,
    q: Float[Tensor, "B T HK"] | None,
    k: Float[Tensor, "B T GK"] | None = None,
    v: Float[Tensor, "B T GV"] | None = None,
) -> Float[Tensor, "B T width"]:
    """Tokens for a mixer `with_given_heads`: q, k and v; q alone; or k and v alone, as its context."""
    x = torch.cat([z for z in (q, k, v) if z is not None], -1)
    missing = mixer.dim - x.shape[2]
    return F.pad(x, (missing, 0) if q is None else (0, missing))


class _Part(nn.Module):
    """Some channels of the tokens. Its weight, an empty buffer that moves with the module and is not saved, has device and dtype."""

    weight: Tensor

    def __init__(self, like: Tensor, first: int):
        super().__init__()
        self.first = first
        self.register_buffer("weight", like.detach().new_empty(len(like), 0), persistent=False)

    def forward(self, x: Float[Tensor, "B T width"]) -> Float[Tensor, "B T part"]:
        return x.narrow(-1, self.first, len(self.weight))

    def reset_parameters(self) -> None:
        """Nothing to restore; FSDP calls it on every module with a buffer."""


def taken_over(dropout: float, mixer: Mixer) -> float:
    """The dropout of weights: the layer's, which the mixer then has too, or, where that is 0, the mixer's own."""
    own = mixer.options.get("dropout")
    if not dropout:
        return own or 0.0
    if own is None:
        raise UnsupportedError(
            f"MultiheadAttention: {mixer.name} does not support dropout of weights ({dropout}): set the "
            "layer's dropout to 0.0 first"
        )
    if own not in (0.0, dropout):
        raise OptionError(
            f"MultiheadAttention: the mixer's dropout ({own}) is not the layer's ({dropout}). Build the "
            "mixer without: that of the layer is taken over."
        )
    mixer.dropout = dropout  # type: ignore[assignment]  # a mixer with the option has the number
    mixer.options = {**mixer.options, "dropout": dropout}
    return dropout
