"""SCORES: how well a query and a key match. score(q [.. T K], k [.. S K]) -> [.. T S]

A score is used in two steps, so that the keys of a stream are prepared once and long sequences can be scored in parts:
    queries(q) -> q'     keys(k, position) -> k'     pairs(q', k') -> [.. T S]      (`product`: pairs is q' k'^T)
With `num_heads` every head has parameters of its own and `..` ends in the heads; without, `..` is free.
"""

import inspect
import math
from collections.abc import Callable
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core import (
    Above0,
    Catalog,
    CheckedModule,
    OptionError,
    Options,
    ShapeError,
    check_place,
    first_parameter,
    is_dense,
    shown,
)
from regard.functional.rows import longer, ranged, unit_norm
from regard.functional.scored import Interaction, additive_score, pair_layer
from regard.nn.dice import Dice
from regard.nn.starts import glorot_matrices, uniform, unset

EPS = 1e-6

Queries = Float[Tensor, "*b T K"]
Keys = Float[Tensor, "*b S K"]
Scores = Float[Tensor, "*b T S"]


class Score(CheckedModule):
    """Base of every score: the dot product, with queries and keys as they are.

    Args:
        dim: channels of a token, D
        num_heads: heads, H
    """

    name: ClassVar[str]
    formula: ClassVar[str]  # for one query q and one key k of width K
    product: ClassVar[bool] = True  # `pairs` is a dot product, which fused kernels know
    width: int = 1  # numbers that `pairs` holds for each pair
    max_len: int | None = None  # largest number of keys, where there is one

    def __init__(self, dim: int, *, num_heads: int | None = None):
        super().__init__()
        self.dim = dim
        self.heads = () if num_heads is None else (num_heads,)

    def forward(self, q: Queries, k: Keys) -> Scores:
        """Raises ShapeError for what does not fit."""
        self._check(q, k)
        return self.pairs(self.queries(q), self.keys(k))

    def _check(self, q: Tensor, k: Tensor) -> None:
        weight = first_parameter(self)
        for name, x, axis in (("q", q, "T"), ("k", k, "S")):
            dense = is_dense(x) and x.is_floating_point()
            if not dense or x.ndim < 2 + len(self.heads) or x.shape[-1] != self.dim:
                want = ", ".join(map(str, ("..", *self.heads, axis, self.dim)))
                raise ShapeError(
                    f"{self.name}: {name} must be a dense floating tensor [{want}], got {shown(x)}"
                )
            check_place(self.name, name, x, q if weight is None else weight)
        if q.shape[:-2] != k.shape[:-2] or (self.heads and q.shape[-3:-2] != self.heads):
            raise ShapeError(
                f"{self.name}: q {list(q.shape)} and k {list(k.shape)} must have the same axes before tokens and width"
            )
        if self.max_len is not None and k.shape[-2] > self.max_len:
            raise ShapeError(f"{self.name}: {k.shape[-2]} keys, max_len is {self.max_len}")

    def queries(self, q: Queries) -> Float[Tensor, "*b T A"]:
        return q

    def keys(self, k: Keys, position: Int[Tensor, "B S"] | None = None) -> Float[Tensor, "*b S A"]:
        """`position` of the keys, for the scores that depend on it; by default 0 .. S - 1."""
        return k

    def pairs(self, q: Float[Tensor, "*b T A"], k: Float[Tensor, "*b S A"]) -> Scores:
        return q @ k.mT

    def _empty(self, *shape: int) -> nn.Parameter:
        """[H, *shape]"""
        return unset(*self.heads, *shape)


class Dot(Score):
    """The dot product (Luong et al. 2015, arXiv 1508.04025)."""

    name = "dot"
    formula = "q . k"


class ScaledDot(Score):
    """The dot product over the root of the width (Vaswani et al. 2017, arXiv 1706.03762)."""

    name = "scaled_dot"
    formula = "q . k / sqrt(K)"

    def queries(self, q):
        return q / self.dim**0.5


class General(Score):
    """A learned bilinear form (Luong et al. 2015, arXiv 1508.04025)."""

    name = "general"
    formula = "q^T W k"

    def __init__(self, dim: int, *, num_heads: int | None = None):
        super().__init__(dim, num_heads=num_heads)
        self.weight = self._empty(dim, dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        glorot_matrices(self.weight)

    def queries(self, q):
        return q @ self.weight


class Additive(Score):
    """One hidden layer on query and key (Bahdanau et al. 2014, arXiv 1409.0473); with W = [W_q W_k] Luong's concat.

    Bounded by the sum of |v|. v starts uniform, not at the paper's zero, where all weights are equal.

    Args:
        hidden_dim: channels of the hidden layer; None: a multiple of dim
        bias: True: linear maps have a bias
    """

    name = "additive"
    formula = "v . tanh(W_q q + W_k k + b)"
    product = False

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int | None = None,
        hidden_dim: int | None = None,
        bias: bool = True,
    ):
        super().__init__(dim, num_heads=num_heads)
        self.width = hidden_dim or dim
        self.query = self._empty(self.width, dim)
        self.key = self._empty(self.width, dim)
        self.v = self._empty(self.width)
        self.bias = self._empty(self.width) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        glorot_matrices(self.query, self.key)
        uniform(self.v, self.width)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def queries(self, q):
        projected = q @ self.query.mT
        return projected if self.bias is None else projected + self.bias[..., None, :]

    def keys(self, k, position=None):
        return k @ self.key.mT

    def pairs(self, q, k):
        return additive_score(q, k, self.v)


class Location(Score):
    """A learned row of W for each position of a key, whatever the key holds (Luong et al. 2015, arXiv 1508.04025).

    Args:
        max_len: largest number of tokens in a row; None: no limit
    """

    name = "location"
    formula = "(W q)_j for the key at position j"

    def __init__(self, dim: int, *, num_heads: int | None = None, max_len: int):
        super().__init__(dim, num_heads=num_heads)
        self.max_len = max_len
        self.weight = self._empty(max_len, dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        uniform(self.weight, self.dim)

    def keys(self, k, position=None):
        if position is None:
            S = k.shape[-2]
            return longer(self.weight, S, -2)[..., :S, :].expand(*k.shape[:-1], -1)
        return self.weight[..., position.clamp_min(0), :].movedim(-3, 0)


class Cosine(Score):
    """The cosine, sharpened by beta = softplus(raw) > 0 (Graves et al. 2014, arXiv 1410.5401); never beyond beta.

    beta is learned, and starts at sqrt(K), where scores of independent vectors vary as scaled dot products do. A vector
    is divided by max(norm, 1e-6), where the paper adds a constant to the product of both norms.

    Args:
        beta: factor of the cosine; None: learned, from sqrt(K) on
    """

    name = "cosine"
    formula = "beta q . k / (|q| |k|)"

    def __init__(self, dim: int, *, num_heads: int | None = None, beta: Above0 | None = None):
        super().__init__(dim, num_heads=num_heads)
        self.beta = dim**0.5 if beta is None else beta
        self.raw = self._empty()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        raw = self.beta + math.log(-math.expm1(-self.beta))  # softplus(raw) = beta
        nn.init.constant_(self.raw, raw)

    def queries(self, q):
        return F.softplus(self.raw)[..., None, None] * unit_norm(q, EPS)

    def keys(self, k, position=None):
        return unit_norm(k, EPS)


UnitActivation = Literal["dice", "prelu", "sigmoid"]


class ActivationUnit(Score):
    """DIN's activation unit, a small network on the pair (Zhou et al. 2018, arXiv 1706.06978); unbounded.

    interaction: "outer" k q^T, row by row, as in the paper; "elementwise" k * q; "din_code" [q, k, q - k, q * k] in the
    place of the whole input, as in the authors' demo; "none" leaves k and q alone. Each is linear in k for a given q, so that the first layer is one
    matrix for each query, and no features of pairs are stored. Dice needs the statistics of all pairs at once, so it
    serves pools only: not attention, where it would see later tokens. hidden_dims: (36,) in the paper, (80, 40) in the demo.

    Args:
        interaction: products of key and query that the network reads
        activation: activation of the network's hidden layers
        hidden_dims: channels of each hidden layer of the network
    """

    name = "activation_unit"
    formula = "MLP([k ; interaction(q, k) ; q])"
    product = False

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int | None = None,
        interaction: Interaction = "outer",
        activation: UnitActivation = "prelu",
        hidden_dims: tuple[int, ...] = (36,),
    ):
        super().__init__(dim, num_heads=num_heads)
        if activation == "dice" and num_heads is not None:
            raise OptionError("activation 'dice' has statistics over later tokens too. Use 'prelu'")
        if not hidden_dims:
            raise OptionError("hidden_dims must hold at least one width")
        self.width = max(hidden_dims)
        self.interaction = interaction
        self.activation = activation
        width = dim * {"outer": dim + 2, "elementwise": 3, "din_code": 4, "none": 2}[interaction]
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for out in (*hidden_dims, 1):
            self.weights.append(self._empty(out, width))
            self.biases.append(self._empty(out))
            width = out
        slopes, dices = (hidden_dims if activation == kind else () for kind in ("prelu", "dice"))
        self.slopes = nn.ParameterList(self._empty(out) for out in slopes)
        self.dices = nn.ModuleList(Dice(out) for out in dices)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        glorot_matrices(*self.weights)
        for bias in self.biases:
            nn.init.zeros_(bias)
        for slope in self.slopes:
            nn.init.constant_(slope, 0.25)

    def pairs(self, q: Queries, k: Keys, allowed: Bool[Tensor, "*c S"] | None = None) -> Scores:
        """`allowed`: the pairs that Dice's statistics are taken over."""
        first = self.weights[0], self.biases[0], self.interaction
        of_key, of_query = pair_layer(q, *first)
        hidden = torch.einsum("...tfk,...sk->...tsf", *ranged(of_key, k)) + of_query.unsqueeze(-2)
        for i in range(1, len(self.weights)):
            (weight,) = ranged(self.weights[i])
            hidden = self._activate(i - 1, hidden, allowed) @ weight.mT.unsqueeze(-3)
            hidden = hidden + self.biases[i][..., None, None, :]
        return hidden.squeeze(-1)

    def _activate(self, layer: int, hidden: Tensor, allowed: Tensor | None) -> Tensor:
        if self.activation == "sigmoid":
            return hidden.sigmoid()
        if self.activation == "prelu":
            return torch.where(hidden > 0, hidden, self.slopes[layer][..., None, None, :] * hidden)
        allowed = None if allowed is None else allowed.expand(hidden.shape[:-1])
        return self.dices[layer](hidden, allowed)


SCORES: Catalog[type[Score]] = Catalog(
    "score", (Dot, ScaledDot, General, Additive, Location, Cosine, ActivationUnit)
)


def build_score(
    score: str | Callable[..., Score],
    dim: int,
    *,
    num_heads: int | None = None,
    max_len: int | None = None,
    options: Options | None = None,
) -> Score:
    """A score of this name or class, with its own `options`; `max_len` is taken by those that need it.

    Raises UnknownNameError (score or option), OptionError (a missing max_len, a value that cannot be used), and ShapeError for a class of
    your own that gives no number for each pair.
    """
    cls = SCORES[score] if isinstance(score, str) else score
    takes = max_len is not None and "max_len" in inspect.signature(cls).parameters
    facts = {"max_len": max_len} if takes else {}
    made = cls(dim, num_heads=num_heads, **facts | dict(options or {}))
    if not isinstance(score, str):
        if not hasattr(made, "name"):
            raise OptionError(f"{type(made).__name__} has no name: declare it in the class")
        like = next(made.parameters(), torch.empty(0))
        q, k = (like.new_zeros(1, *made.heads, n, dim) for n in (2, min(3, made.max_len or 3)))
        with torch.no_grad():
            found = made(q, k)
        if getattr(found, "shape", None) != (wanted := (*q.shape[:-1], k.shape[-2])):
            raise ShapeError(
                f"{made.name}: scores of two queries and {k.shape[-2]} keys must be {list(wanted)}, got {shown(found)}"
            )
    return made
