"""The maximum of each channel over a set: keeps one telling token from being averaged away (Kim 2014, arXiv 1408.5882).

Its weights are the share of channels whose maximum is at a token, so that they sum to 1; they do not make the summary, since each
channel takes its own token. Cost: S D.
"""

import torch

from regard.core.pool import Pool


class Max(Pool):
    """`query_dim`: take queries of this width, and give each the same maximum, in the place of a pool that needs them."""

    name = "max"
    paper = "Kim 2014, arXiv 1408.5882"

    def __init__(self, dim: int, *, query_dim: int | None = None):
        super().__init__(dim, query_dim=query_dim)

    def pool(self, x, query, valid):
        largest = torch.where(valid[..., None], x, -torch.inf).amax(1, keepdim=True)
        return largest.expand(-1, 1 if query is None else query.shape[1], -1)

    def weigh(self, x, query, valid):
        largest = (x == self.pool(x, None, valid)).to(x.dtype) * valid[..., None]
        share = (largest / largest.sum(1, keepdim=True).clamp(min=1)).mean(-1)
        return share[:, None].expand(-1, 1 if query is None else query.shape[1], -1)
