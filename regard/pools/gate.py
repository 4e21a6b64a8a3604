"""Linear gate of MMoE (Ma et al. 2018, KDD): weights from the model's input, not from what is weighed.

    g_k = softmax(W_k q_k),   f_k = sum_i g_ki f_i          W_k [n d], no bias

q_k is the input of gate k; in MMoE all K of them get the same. Row i of W_k belongs to expert i whatever it holds: the
location score of SCORES, with one head for each gate. Cost: K n (d + E).

Args:
    num_experts: experts that the gates weigh
"""

from einops import rearrange

from regard.core import Pool, ShapeError
from regard.functional.scored import normalise
from regard.nn.scores import Location


class Gate(Pool):
    name = "gate"
    paper = "Ma et al. 2018, KDD"
    num_queries: int

    def __init__(self, dim: int, *, query_dim: int, num_queries: int, num_experts: int):
        super().__init__(dim, query_dim=query_dim, num_queries=num_queries)
        self.num_experts = num_experts
        self.score = Location(query_dim, num_heads=num_queries, max_len=num_experts)

    def weigh(self, x, query, valid):
        S = x.shape[1]
        if self.num_experts != S:
            raise ShapeError(f"gate: x must hold {self.num_experts} experts, got {S}")
        keys = self.score.keys(x[:, None].expand(-1, self.num_queries, -1, -1))
        scores = rearrange(self.score.pairs(query[:, :, None], keys), "b k 1 s -> b k s")
        return normalise(scores, valid[:, None], "softmax")
