"""Attention-query gate: for each task a learned query attends to the experts' outputs.

    a_ki = softmax_i score(c_k, f_i(x)),   f_k = sum_i a_ki f_i(x)

A variant of the gate of MMoE (Ma et al. 2018): it sees x only through the experts, so it does not depend on their
order, and has K E parameters where the linear gate has K n d. It is cross attention of K learned queries over n
expert tokens. How large the experts' outputs are decides how sharp it is: `norm_keys` puts a layer norm before them.
Cost: K n E.

Args:
    norm_keys: True: a layer norm stands before the keys
"""

from torch import nn

from regard.core import Options, Pool
from regard.nn.scores import Score
from regard.pools.learned import LearnedQueries


class AttentionQueryGate(Pool):
    name = "attention_query_gate"
    paper = "variant of Ma et al. 2018, KDD"

    def __init__(
        self,
        dim: int,
        *,
        num_queries: int,
        score: str | type[Score] = "scaled_dot",
        score_options: Options | None = None,
        max_len: int | None = None,
        norm_keys: bool = False,
    ):
        super().__init__(dim, num_queries=num_queries)
        self.norm = nn.LayerNorm(dim) if norm_keys else nn.Identity()
        self.context = LearnedQueries(
            dim, num_queries, score=score, score_options=score_options, max_len=max_len
        )

    def weigh(self, x, query, valid):
        return self.context(self.norm(x), valid)
