"""Heads: the projections around multi-head attention."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import local

from jaxtyping import Float
from torch import Tensor, nn

from regard.core.errors import ShapeError
from regard.core.shapes import check_divisible, check_positive
from regard.functional.shared.numerics import unit_norm
from regard.nn.starts import Glorot, glorot


class _Watch(local):
    """The heads that a call of this thread observes, and what it has seen of them."""

    heads: "Heads | None" = None
    seen: dict[str, Tensor] | None = None


_watch = _Watch()


class Heads(nn.Module):
    """q, k, v = heads.split(x, context); y = heads.merge(mixed).

    Keys and values may have fewer heads than queries (grouped-query attention), and `shared_qk=True` leaves the
    key projection out: keys are then made from the queries. Initialised with Glorot over the whole matrix
    (Vaswani et al. 2017, arXiv 1706.03762).
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        bias: bool = False,
        shared_qk: bool = False,
    ):
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        check_positive(num_heads=num_heads, num_kv_heads=num_kv_heads)
        check_divisible(dim=dim, num_heads=num_heads)
        check_divisible(num_heads=num_heads, num_kv_heads=num_kv_heads)
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, dim // num_heads
        kv_dim = num_kv_heads * self.head_dim
        self.query = Glorot(dim, dim, bias=bias)
        self.key = None if shared_qk else Glorot(dim, kv_dim, bias=bias)
        self.value = Glorot(dim, kv_dim, bias=bias)
        self.out = Glorot(dim, dim, bias=bias)
        glorot(self.query, self.key, self.value, self.out)

    def queries(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T K"]:
        return self._see("q", split_heads(self.query(x), self.num_heads, self.head_dim))

    def keys(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B G S K"]:
        """Keys [B G S K]; with `shared_qk`, the queries scaled to unit norm (arXiv 2001.04451)."""
        if self.key is None:
            return self._see("k", unit_norm(self.queries(x)))
        return self._see("k", split_heads(self.key(x), self.num_kv_heads, self.head_dim))

    def values(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B G S V"]:
        return self._see("v", split_heads(self.value(x), self.num_kv_heads, self.head_dim))

    def split(
        self, x: Float[Tensor, "B T D"], context: Float[Tensor, "B S D"] | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """q [B H T K] of x; k [B G S K] and v [B G S V] of the context, or of x."""
        source = x if context is None else context
        return self.queries(x), self.keys(source), self.values(source)

    def merge(self, mixed: Float[Tensor, "B H T V"]) -> Float[Tensor, "B T D"]:
        return self.out(self._see("heads", mixed).transpose(1, 2).flatten(2))

    @contextmanager
    def watched(self) -> Iterator[dict[str, Tensor]]:
        """While open, the first q, k, v that this thread makes, and the first heads that it merges, enter the dictionary."""
        before = _watch.heads, _watch.seen
        seen: dict[str, Tensor] = {}
        _watch.heads, _watch.seen = self, seen
        try:
            yield seen
        finally:
            _watch.heads, _watch.seen = before

    def _see(self, name: str, z: Tensor) -> Tensor:
        if _watch.heads is self and _watch.seen is not None:
            _watch.seen.setdefault(name, z)
        return z


def split_heads(
    z: Float[Tensor, "B T D"], num_heads: int, head_dim: int
) -> Float[Tensor, "B H T K"]:
    """ShapeError where a projection was replaced by one of another width, as tensor parallel does."""
    B, T, D = z.shape
    if num_heads * head_dim != D:
        raise ShapeError(
            f"Heads cannot make {num_heads} heads of {head_dim} of a projection of width {D}: a process of tensor parallel "
            f"has a part of the heads, which no mixer counts. Leave out the projections of mixers, or give them width "
            f"{num_heads * head_dim}."
        )
    if T == 1:  # one operation in a decoding step
        return z.view(B, num_heads, 1, head_dim)
    return z.view(B, T, num_heads, head_dim).transpose(1, 2)
