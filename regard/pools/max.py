"""The maximum of each channel over a set: keeps one telling token from being averaged away (Kim 2014, arXiv 1408.5882).

Its weights are the share of channels whose maximum is at a token, so that they sum to 1; they do not make the summary, since each
channel takes its own token. Cost: S D.
"""

import torch

from regard.pools.mean import Plain


class Max(Plain):
    """`query_dim`: take queries of this width, and give each the same maximum, in the place of a pool that needs them."""

    name = "max"
    paper = "Kim 2014, arXiv 1408.5882"

    def pool(self, x, query, valid):
        return self.each(torch.where(valid[..., None], x, -torch.inf).amax(1), query)

    def weigh(self, x, query, valid):
        largest = (x == self.pool(x, None, valid)).type_as(x) * valid[..., None]
        share = (largest / largest.sum(1, keepdim=True).clamp_min(1)).mean(-1)
        return self.each(share, query)
