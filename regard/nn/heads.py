"""Heads, Values and LatentHeads: the projections around multi-head attention."""

from collections.abc import Callable, Collection
from copy import copy
from typing import Any, Literal, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core import (
    CheckedModule,
    Context,
    Keys,
    Mixed,
    OptionError,
    OtherTokens,
    Queries,
    ShapeError,
    SharedKeys,
    SharedValues,
    TensorMap,
    Tokens,
    UnsupportedError,
    check_divisible,
)
from regard.functional.positions.rotary import Pairing, rotate
from regard.functional.rows import apart, autocast_dtype, side_by_side, unit_norm, upto
from regard.nn.norm import RMSNorm
from regard.nn.starts import Glorot, glorot, projection

Projected = TypeVar("Projected")
Decided = TypeVar("Decided")
Layer = TypeVar("Layer", bound=nn.Module)
After = Int[Tensor, "#B"] | None
"""Number of tokens that come before those of each row; None: none."""
OWN = nn.Linear.forward, nn.Conv1d.forward
HeadNorm = bool | Literal["all"]
"""RMSNorm of queries and keys: of each head, or "all" heads together."""
HeadBias = bool | Literal["qkv"]
"""Biases of all four projections, or of those of queries, keys and values alone."""


class Heads(CheckedModule):
    """q, k, v = heads.split(x, context); y = heads.merge(mixed).

    Queries and keys have `key_dim` channels each, values `value_dim`; `head_dim` is both, by default dim / num_heads.
    Keys and values may have fewer heads than queries (grouped-query attention, arXiv 2305.13245), which `repeat` hands
    out once for each head of queries; with `shared_qk` keys are the queries of unit norm, and have no projection. A
    rotation turns queries and keys by their places (arXiv 2104.09864), before which `qk_norm` normalises them (arXiv 2302.05442, 2501.00656).
    `gate`: outputs of heads are multiplied by sigmoid(W_g x) before the last projection (arXiv 2505.06708): by about 1/2 at the start.
    Initialised with Glorot over the whole matrix (Vaswani et al. 2017, arXiv 1706.03762).

    Heads are counted from the width that projections give. A process of tensor parallel (query, key and value
    column-wise, out row-wise) has a part of them, which is as good as all where the mechanism is `alike` in every head;
    elsewhere, where something belongs to a head by its number, a part is refused.
    """

    apart: bool = False  # see `observed`
    of: TensorMap | None = None

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        key_dim: int | None = None,
        value_dim: int | None = None,
        bias: HeadBias = False,
        qk_norm: HeadNorm = False,
        gate: bool = False,
        shared_qk: bool = False,
        repeat: bool = False,
        alike: bool = False,
        position: Any = None,
    ):
        super().__init__()
        num_kv_heads = num_kv_heads or num_heads
        if head_dim is None and (key_dim is None or value_dim is None):
            check_divisible(dim=dim, num_heads=num_heads)
        check_divisible(num_heads=num_heads, num_kv_heads=num_kv_heads)
        if shared_qk and num_kv_heads != num_heads:
            raise OptionError(
                f"shared_qk makes every key from a query, so num_kv_heads must be {num_heads}, got {num_kv_heads}"
            )
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = head_dim or dim // num_heads
        self.key_dim = key_dim or self.head_dim
        self.value_dim = value_dim or self.head_dim
        self.copies = num_heads // num_kv_heads if repeat else 1
        self.shared_by = num_heads // num_kv_heads // self.copies
        self.alike = alike and not gate and qk_norm != "all"
        self.rotation: Any = position if hasattr(position, "rotate") else None
        K, V = self.key_dim, self.value_dim
        has = bool(bias)
        self.query: nn.Linear = Glorot(dim, num_heads * K, bias=has)
        self.key: nn.Linear | None = None if shared_qk else Glorot(dim, num_kv_heads * K, bias=has)
        self.value: nn.Linear = Glorot(dim, num_kv_heads * V, bias=has)
        self.out: nn.Linear = Glorot(num_heads * V, dim, bias=bias is True)
        self.gate: nn.Linear | None = Glorot(dim, num_heads * V, bias=has) if gate else None
        glorot(self)
        q, k = (num_heads * K, num_kv_heads * K) if qk_norm == "all" else (K, K)
        self.query_norm = RMSNorm(q) if qk_norm else None
        self.key_norm = RMSNorm(k) if qk_norm and not shared_qk else None

    def queries(self, x: Tokens, after: After = None) -> Queries:
        """Queries of tokens that come after so many others, of the first by default; their places matter to a rotation."""
        return self._heads("query", x, after)

    def keys(self, x: OtherTokens, after: After = None) -> SharedKeys:
        """Keys, G = H where they are repeated; with `shared_qk`, the queries scaled to unit norm (arXiv 2001.04451)."""
        if self.key is None:
            return unit_norm(self._heads("query", x, after))
        return self._heads("key", x, after)

    def values(self, x: OtherTokens) -> SharedValues:
        return self._heads("value", x)

    def split(
        self, x: Tokens, context: Context = None, after: After = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """q [B H T K] of x; k [B G S K] and v [B G S V] of the context, or of x. Raises ShapeError for a part of the heads, see above."""
        source = x if context is None else context
        q = self._heads("query", x, after)
        k = unit_norm(q) if self.key is None else self._heads("key", source, after)
        v = self._heads("value", source)
        if not q.shape[1] == k.shape[1] * self.shared_by == v.shape[1] * self.shared_by:
            raise ShapeError(
                f"Heads cannot mix {q.shape[1]} heads of queries with {k.shape[1]} of keys and {v.shape[1]} of values: "
                "only some of the projections were divided. Divide query, key and value alike."
            )
        return q, k, v

    def merge(self, mixed: Mixed, x: Tokens | None = None) -> Float[Tensor, "B T _"] | Mixed:
        """x: the tokens, for the gate. A copy that is `observed` gives the heads."""
        if self.gate is not None:
            mixed = mixed * split_heads(self.gate(x).sigmoid(), self.num_heads, self.value_dim)
        return mixed if self.apart else self.out(mixed.transpose(1, 2).flatten(2))

    def observed(self, of: TensorMap | None = None) -> "Heads":
        """A copy with the same parameters whose `merge` leaves the heads apart; of: its values become of(v), and meet no gate."""
        made = copy(self)
        made.apart = True
        made.of = of
        if of is not None:
            made._modules = {**self._modules, "gate": None}
        return made

    def decided(
        self,
        decide: Callable[[Projected], Decided],
        projected: Projected,
        project: Callable[[Tensor], Projected],
        x: Tensor,
    ) -> Decided:
        """decide(projected), without gradient: autocast must not move a token from one bucket or cluster to another; under autocast, decide(project(x)) computed in the type of the weights."""
        with torch.no_grad():
            if autocast_dtype(x) is None:
                return decide(projected)
            with torch.autocast(x.device.type, enabled=False):
                return decide(project(x.to(self.value.weight.dtype)))

    def zeros(self, batch_size: int, room: int, width: int | None = None) -> Tensor:
        """Zeros [B G room width] for as many heads of values as there are, by default of their width: what a state begins with."""
        weight, V = self.value.weight, self.value_dim
        # of tensor parallel: this rank's part
        weight = getattr(weight, "to_local", lambda: weight)()
        G = split_heads(weight.mT[None], self.num_kv_heads, V, alike=self.alike).shape[1]
        return weight.new_zeros(batch_size, G * self.copies, room, V if width is None else width)

    def _heads(
        self, of: Literal["query", "key", "value"], x: Tensor, after: Tensor | None = None
    ) -> Tensor:
        """The heads of a projection, normalised, turned and repeated, or what is observed in their place."""
        H = self.num_kv_heads
        K = self.key_dim
        norm = self.key_norm
        if of == "query":
            H, norm = self.num_heads, self.query_norm
        elif of == "value":
            K, norm = self.value_dim, None
        z = getattr(self, of)(x)
        if norm is not None and norm.normalized_shape[0] == z.shape[2]:  # of all heads together
            z, norm = norm(z), None
        z = split_heads(z, H, K, alike=self.alike)
        z = z if norm is None else norm(z)
        if of != "value" and self.rotation is not None:
            place = upto(z.shape[2], z)  # rows are compact: valid ones first
            z = self.rotation.rotate(z, place if after is None else after[:, None] + place)
        z = z if self.copies == 1 or of == "query" else z.repeat_interleave(self.copies, 1)
        return z if of != "value" or self.of is None else self.of(z)


class Merged(nn.Module):
    """Base of heads that are side by side before the layer `out`."""

    out: nn.Module

    def merge(self, mixed: Mixed) -> Tokens:
        return self.out(side_by_side(mixed))


class Values(Merged):
    """v = values.split(x); y = values.merge(weights @ v). Glorot initialisation, as in `Heads`."""

    def __init__(self, dim: int, num_heads: int):
        super().__init__()
        check_divisible(dim=dim, num_heads=num_heads)
        self.num_heads = num_heads
        self.head_dim = dim // num_heads
        self.value = Glorot(dim, dim)
        self.out = Glorot(dim, dim)
        glorot(self)

    def split(self, x: OtherTokens) -> Float[Tensor, "B H S V"]:
        return split_heads(self.value(x), self.num_heads, self.head_dim)


class LatentHeads(Merged):
    """Heads whose keys and values are made of one latent of each token (DeepSeek-AI 2024, arXiv 2405.04434).

    q, z = split(x, context, at);   k, v = expanded(z);   y = merge(mixed). A latent z = [c; r] has `latent_dim` channels, which are normed, and
    `rotary_dim`, which are turned and serve all heads. A query has `nope_dim` channels, and then as many that are turned; it is made of x, or
    of a normed latent of its own, of `query_rank` channels. base: of the rotation, see `rotate`; None: nothing is turned.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        latent_dim: int,
        nope_dim: int,
        rotary_dim: int,
        value_dim: int,
        query_rank: int | None,
        base: float | None,
        pairing: Pairing,
    ):
        super().__init__()
        self.latents = [latent_dim, rotary_dim]
        self.widths = [nope_dim, value_dim]
        self.key_dim = nope_dim + rotary_dim
        self.turn = (base, pairing) if rotary_dim and base is not None else None
        self.query = projection(dim, num_heads * self.key_dim, query_rank, norm=True)
        self.compress = projection(dim, latent_dim + rotary_dim)
        self.norm = RMSNorm(latent_dim)
        self.expand: Any = projection(latent_dim, num_heads * (nope_dim + value_dim))
        self.out = projection(num_heads * value_dim, dim)

    @property
    def weight(self) -> Float[Tensor, "H W M"]:
        """What each head makes its keys, and then its values, of."""
        return self.expand.weight.unflatten(0, (-1, sum(self.widths)))

    def split(
        self, x: Tokens, context: Context, at: Int[Tensor, "#B T"]
    ) -> tuple[Queries, Float[Tensor, "B 1 S Z"]]:
        """Queries of x at these positions, and latents of the context, or of x."""
        q = apart(self.query(x), self.key_dim)
        c, r = self.compress(x if context is None else context)[:, None].split(self.latents, -1)
        if self.turn is not None:
            still, turned = q.split([self.widths[0], self.latents[1]], -1)
            turned = rotate(turned, at, *self.turn)
            r = rotate(r, at, *self.turn)
            q = torch.cat([still, turned], -1)
        return q, torch.cat([self.norm(c), r], -1)

    def expanded(self, z: Float[Tensor, "B 1 S Z"]) -> tuple[Keys, Float[Tensor, "B H S V"]]:
        """Keys and values of all heads."""
        c, r = z.split(self.latents, -1)
        k, v = apart(self.expand(c[:, 0]), sum(self.widths)).split(self.widths, -1)
        return torch.cat([k, r.expand(-1, k.shape[1], -1, -1)], -1), v


def split_heads(z: Tokens, num_heads: int, head_dim: int, *, alike: bool = False) -> Queries:
    """The heads of a projection; ShapeError for another width, unless it is that of a part of heads that are alike."""
    width = z.shape[2]
    if width != num_heads * head_dim:
        if not alike or width % head_dim or num_heads % (width // head_dim):
            raise ShapeError(
                f"Heads cannot make {num_heads} heads of {head_dim} of a projection of width {width}: a process of tensor "
                "parallel has a part of the heads, and what this mechanism holds for each of them (patterns, tables, learned "
                f"numbers) is not divided with them. Leave out the projections of this mixer, or give them width {num_heads * head_dim}."
            )
    return z.unflatten(2, (-1, head_dim)).transpose(1, 2)


def alone(layer: nn.Module, own: Collection[Callable] = OWN) -> bool:
    """True where no adapter and no hook is around the layer, so that its weight is all that it does; own: forwards that it may have."""
    hooks = layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks
    hooked = any(hooks) or layer._backward_pre_hooks
    return type(layer).forward in own and "forward" not in layer.__dict__ and not hooked


def read(who: str, layer: Layer) -> Layer:
    """The layer. Raises UnsupportedError where it is not alone."""
    if not alone(layer):
        raise UnsupportedError(
            f"{who} does not support a hook or an adapter around its {type(layer).__name__}: it reads the weight, and never calls "
            "the layer. Parametrise the weight (torch.nn.utils.parametrize), or leave this layer out."
        )
    return layer
