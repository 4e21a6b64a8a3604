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
        Q = 1 if query is None else query.shape[1]
        return _present(x, valid).amax(1, keepdim=True).expand(-1, Q, -1)

    def weigh(self, x, query, valid):
        Q = 1 if query is None else query.shape[1]
        x = _present(x, valid)
        largest = (x == x.amax(1, keepdim=True)).to(x.dtype)
        share = (largest / largest.sum(1, keepdim=True)).mean(-1)
        return share[:, None].expand(-1, Q, -1)


def _present(x, valid):
    return x if valid is None else torch.where(valid[..., None], x, -torch.inf)
