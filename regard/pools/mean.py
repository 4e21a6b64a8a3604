"""The mean of a set: what the base models take where attention weighs. Cost: S D."""

from regard.core import Pool


class Plain(Pool):
    """Base of pools with one summary for all queries."""

    def __init__(self, dim: int, *, query_dim: int | None = None):
        super().__init__(dim, query_dim=query_dim)

    def each(self, row, query):
        """The row [B _] for every query."""
        return row[:, None].expand(-1, 1 if query is None else query.shape[1], -1)


class Mean(Plain):
    """`query_dim`: take queries of this width, and give each the same mean, in the place of a pool that needs them."""

    name = "mean"
    paper = "none"

    def weigh(self, x, query, valid):
        return self.each(valid.type_as(x) / valid.sum(1, keepdim=True).clamp_min(1), query)
