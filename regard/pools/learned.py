"""Queries that are parameters, and their weights over a set: what context vectors and attention-query gates share."""

from jaxtyping import Float
from torch import Tensor, nn

from regard.core import Marks, Options, ShapeError
from regard.functional.scored import normalise
from regard.nn.scores import ActivationUnit, Score, build_score
from regard.nn.starts import unset


class LearnedQueries(nn.Module):
    """keys [B S A] -> softmax_s score(c_q, key_s) [B Q S], c [Q A] from N(0, 1).

    A score that goes by position counts the valid keys.
    """

    def __init__(
        self,
        dim: int,
        num_queries: int,
        *,
        score: str | type[Score],
        score_options: Options | None,
        max_len: int | None,
    ):
        super().__init__()
        self.query = unset(num_queries, dim)
        self.reset_parameters()
        self.score = build_score(score, dim, max_len=max_len, options=score_options)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.query)

    def forward(self, keys: Float[Tensor, "B S A"], valid: Marks) -> Float[Tensor, "B Q S"]:
        B, S, _ = keys.shape
        longest = self.score.max_len
        if longest is not None and longest < S:
            raise ShapeError(f"{self.score.name}: {S} keys, max_len is {longest}")
        prepared = self.score.keys(keys, valid.cumsum(1) - 1)
        queries = self.score.queries(self.query.expand(B, -1, -1))
        allowed = [valid[:, None]] * isinstance(self.score, ActivationUnit)  # of its statistics
        return normalise(self.score.pairs(queries, prepared, *allowed), valid[:, None], "softmax")
