"""Context-query pooling (Yang et al. 2016, NAACL, Hierarchical Attention Networks).

    u_t = tanh(W h_t + b),   a_t = softmax_t score(c, u_t),   s = sum_t a_t h_t

c [Q A] is learned, and random at the start; the paper has one, and the plain dot product. Values are the h_t
themselves. Cost: S D A. Any other score of SCORES is ours.

Args:
    hidden_dim: channels of the hidden layer; None: a multiple of dim
"""

import torch
from torch import nn

from regard.core import Options, Pool
from regard.nn.scores import Score
from regard.pools.learned import LearnedQueries


class ContextQuery(Pool):
    name = "context_query"
    paper = "Yang et al. 2016, NAACL"

    def __init__(
        self,
        dim: int,
        *,
        hidden_dim: int | None = None,
        num_queries: int = 1,
        score: str | type[Score] = "dot",
        score_options: Options | None = None,
        max_len: int | None = None,
    ):
        super().__init__(dim, num_queries=num_queries)
        hidden_dim = hidden_dim or dim
        self.hidden = nn.Linear(dim, hidden_dim)
        self.context = LearnedQueries(
            hidden_dim, num_queries, score=score, score_options=score_options, max_len=max_len
        )

    def weigh(self, x, query, valid):
        return self.context(torch.tanh(self.hidden(x)), valid)
