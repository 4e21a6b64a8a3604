"""Pool: the second, smaller interface. A set x [B S D] -> a summary y [B Q D] for each of Q queries, by weights."""

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor

from regard.core.errors import ShapeError
from regard.core.mask import Mask
from regard.core.options import Recorded
from regard.core.request import check_mask, check_tokens, clear, first_parameter
from regard.core.shapes import Marks, OtherTokens

Members = OtherTokens  # the tokens of a set
Query = Float[Tensor, "B Q K"] | None  # None: the queries are the pool's own


class Pool(Recorded):
    """y_q = sum_s w_qs x_s. A mechanism writes `weigh`; one whose values are not x itself writes `pool` too.

    Tokens that are not `valid` are as if absent, so that an empty set gives exactly zero, with finite gradients.
    What the mechanism's methods receive has been checked, and is zero where it is not valid.
    query_dim: channels of the queries that are passed; None: the queries are the pool's own.

    Args:
        dim: channels of a token, D
        num_queries: learned queries, or gates, Q
        score: score, of `regard ls scores` or a class
        score_options: options of the score
        max_len: largest number of tokens in a row; None: no limit
        query_dim: channels of the queries that are passed; None: none are
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    query_dim: (
        int | None
    )  # width of the queries that must be passed; None: the queries are the pool's own
    num_queries: int | None  # how many queries there are; None: as many as are passed

    def __init__(self, dim: int, *, query_dim: int | None = None, num_queries: int | None = None):
        super().__init__()
        self.dim = dim
        self.query_dim = query_dim
        self.num_queries = num_queries

    @final  # type: ignore[misc]
    def forward(
        self, x: Members, query: Query = None, *, valid: Marks | None = None
    ) -> Float[Tensor, "B Q D"]:
        """Raises ShapeError for what does not fit."""
        x, valid = self._checked(x, query, valid)
        return clear(self.pool(x, query, valid), valid.any(1, keepdim=True))

    if TYPE_CHECKING:
        __call__ = forward

    @final
    def weights(
        self, x: Members, query: Query = None, *, valid: Marks | None = None
    ) -> Float[Tensor, "B Q S"]:
        """The weights with which `forward` pools; zero where a token is not valid."""
        x, valid = self._checked(x, query, valid)
        return torch.where(valid[:, None], self.weigh(x, query, valid), 0)

    @abstractmethod
    def weigh(self, x: Members, query: Query, valid: Marks) -> Float[Tensor, "B Q S"]:
        """The weights; zero where a token is not valid."""

    def pool(self, x: Members, query: Query, valid: Marks) -> Float[Tensor, "B Q D"]:
        return self.weigh(x, query, valid) @ x

    def _checked(
        self, x: Tensor, query: Tensor | None, valid: Tensor | None
    ) -> tuple[Members, Marks]:
        """The set, zero where it is not valid, and which of it is."""
        weight = first_parameter(self)
        check_tokens(self.name, "x", x, self.dim, weight)
        B, S, _ = x.shape
        check_mask(self.name, Mask(valid=valid), B, S, S, device=x.device)
        if self.query_dim is None:
            if query is not None:
                raise ShapeError(f"{self.name}: its queries are its own. Pass no query.")
        elif query is None:
            raise ShapeError(f"{self.name}: it needs a query [B, Q, {self.query_dim}]")
        else:
            check_tokens(self.name, "query", query, self.query_dim, weight)
            if query.shape[0] != B:
                raise ShapeError(f"{self.name}: query has batch {query.shape[0]}, x has batch {B}")
            if self.num_queries not in (None, query.shape[1]):
                raise ShapeError(
                    f"{self.name}: query must hold {self.num_queries} queries, got {query.shape[1]}"
                )
        if valid is None:
            return x, x.new_ones(B, S, dtype=torch.bool)
        return clear(x, valid), valid
