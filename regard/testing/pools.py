"""The laws of a pool: x [B S D], query [B Q K] -> y [B Q D]."""

from collections.abc import Callable, Iterator
from copy import deepcopy

import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.autograd.gradcheck import GradcheckError
from torch.func import functional_call
from torch.nn.functional import pad

from regard.core import Pool
from regard.testing.laws.derivatives import equals_autograd, equals_finite_differences
from regard.testing.laws.door import learns_nothing
from regard.testing.laws.masks import is_not_poisoned, is_zero_and_finite
from regard.testing.subject import Oracle, made, normal, require_same, results, seeded, tensors
from regard.testing.verdicts import (
    Checked,
    Judged,
    LawError,
    Laws,
    NotDeclared,
    Verdict,
    by_name,
    judge,
    named,
    require,
    require_close,
    require_kept,
)

Factory = Callable[[], Pool]
B = 3
Q = 2
BOUND = 1e-10


class PoolSubject(Judged):
    def __init__(
        self,
        factory: Factory,
        oracle: Oracle | None = None,
        set_size: int = 5,
        by_place: bool = False,
    ):
        super().__init__()
        self.factory = factory
        self.oracle = oracle
        self.by_place = by_place
        self.pool = self.make()
        self.name = self.pool.name
        self.x = normal(B, set_size, self.pool.dim)
        width = self.pool.query_dim
        self.query = None if width is None else normal(B, self.pool.num_queries or Q, width, seed=1)
        self.valid = torch.ones(B, set_size, dtype=torch.bool)
        self.valid[1, 1::2] = False
        self.valid[2] = False

    @property
    def leaf(self) -> Tensor:
        """The tokens, as what a gradient is taken of."""
        return self.x.clone().requires_grad_()

    def make(self, seed: int = 0) -> Pool:
        torch.manual_seed(seed)
        return made(self.factory, Pool).double().eval()

    def queries(self, rows: slice) -> Tensor | None:
        return None if self.query is None else self.query[rows]

    def padded(self, x: Tensor) -> Tensor:
        return self.pool(x, self.query, valid=self.valid)


def oracle(subject: PoolSubject) -> None:
    """Weights, outputs and gradients are the formula's: `oracle(params, tokens, queries) -> weights[query][token]`."""
    if not subject.oracle:
        return subject.cannot_judge("weights and outputs: no oracle is given")
    pool = subject.pool
    query = subject.query
    x = subject.leaf
    found = []
    for b, tokens in enumerate(x):
        given = [] if query is None else list(query[b])
        weights = subject.oracle(tensors(pool), list(tokens), given)
        found.append(torch.stack([torch.stack(list(row)) for row in weights]))
    weights = torch.stack(found)
    require_close(pool.weights(x, query), weights, BOUND, "weights")
    ours, theirs = (results(pool, y, x=x) for y in (pool(x, query), weights @ x))
    require_same(ours, theirs, BOUND, "pool")


def padding(subject: PoolSubject) -> None:
    """Invalid tokens are as if absent, in training too, and have no weight."""
    weights = subject.pool.weights(subject.x, subject.query, valid=subject.valid)
    absent = weights.masked_fill(subject.valid[:, None], 0)
    require(not absent.any(), "a token that is not valid has weight")
    if subject.by_place:
        return subject.cannot_judge("fewer tokens: they are known by their places")
    row = slice(1, 2)
    alone = subject.pool(subject.x[row, subject.valid[1]], subject.queries(row))
    require_close(subject.padded(subject.x)[row], alone, BOUND, "a padded set is not the set alone")
    x, kept = subject.x, subject.valid[:, :-1]
    few, many = (
        subject.make().train()(tokens, subject.query, valid=valid)
        for tokens, valid in ((x[:, :-1], kept), (x, pad(kept, (0, 1))))
    )
    require_close(many, few, BOUND, "in training, an absent token changes a summary")


def poison(subject: PoolSubject) -> None:
    """NaN, Inf and 1e30 where `valid` is False change no output and no gradient."""
    is_not_poisoned(subject.padded, subject.pool, subject.x, subject.valid)


def order(subject: PoolSubject) -> None:
    """A set has no order: permuted tokens give the same summary, and permuted weights."""
    if subject.by_place:
        raise NotDeclared("tokens are known by their places")
    x = subject.x
    query = subject.query
    to = torch.randperm(x.shape[1], generator=seeded(2))
    for call, expected in (
        (subject.pool, subject.pool(x, query)),
        (subject.pool.weights, subject.pool.weights(x, query)[..., to]),
    ):
        require_close(call(x[:, to], query), expected, BOUND, "permuted tokens")


def sensitivity(subject: PoolSubject) -> None:
    """Every token with weight is felt, and tokens have weight."""
    x = subject.leaf
    found = results(subject.pool, subject.pool(x, subject.query), x=x)["gradient of x"]
    used = (subject.pool.weights(x, subject.query) != 0).any(1)
    require(used.any(), "no token has weight")
    require((found != 0).any(-1)[used].all(), "the output ignores a token that has weight")


def batch(subject: PoolSubject) -> None:
    """A row alone gives what it gives in a batch."""
    y = subject.padded(subject.x)
    for b in range(B):
        row = slice(b, b + 1)
        alone = subject.pool(subject.x[row], subject.queries(row), valid=subject.valid[row])
        require_close(alone, y[row], BOUND, f"row {b} alone")


def empty(subject: PoolSubject) -> None:
    """An empty set gives exactly zero, with finite gradients, in training too."""
    for training in (False, True):
        pool = subject.make().train(training)
        x = subject.leaf
        y = pool(x, subject.query, valid=subject.valid)
        is_zero_and_finite(results(pool, y, x=x), ~subject.valid.any(1))


def empty_batch(subject: PoolSubject) -> None:
    """A batch of no sets is valid, with gradients of zero, and changes no buffer in training."""
    pool = subject.make().train()
    whole = pool(subject.x, subject.query)
    none = slice(0, 0)
    seen = pool.weights(subject.x, subject.query)[none].shape
    before = {name: value.clone() for name, value in pool.state_dict().items()}
    x = subject.x[none].clone().requires_grad_()
    query = subject.queries(none)
    for valid in (None, subject.valid[none]):
        learns_nothing(pool, x, pool(x, query, valid=valid), whole[none].shape)
        shape = pool.weights(x, query, valid=valid).shape
        require(shape == seen, f"weights: shape {list(shape)}, not {list(seen)}")
    require_same(pool.state_dict(), before, 0.0, "a buffer changed")


def derivative(subject: PoolSubject) -> None:
    """Gradients of tokens and parameters are differences of outputs."""
    pool = subject.pool
    x = subject.leaf
    own = dict(pool.named_parameters())

    def call(x: Tensor, *values: Tensor) -> Tensor:
        named = dict(zip(own, values, strict=True))
        return functional_call(pool, named, (x, subject.query), {"valid": subject.valid})

    try:
        gradcheck(call, (x, *own.values()))
    except GradcheckError as error:
        said = str(error).partition("\n")[0]
        raise LawError(f"finite difference and gradient differ: {said}") from error


def second_derivative(subject: PoolSubject) -> None:
    """A derivative may be differentiated again."""
    pool = subject.pool
    equals_finite_differences(lambda x: pool(x, subject.query), pool, subject.x)


def transfer(subject: PoolSubject) -> None:
    """A state dict and a deep copy keep the function."""
    other = subject.make(1)
    other.load_state_dict(subject.pool.state_dict())
    y = subject.pool(subject.x, subject.query)
    for what, twin in (("a state dict", other), ("a deep copy", deepcopy(subject.pool))):
        require_close(twin(subject.x, subject.query), y, 0.0, what)


def transforms(subject: PoolSubject) -> None:
    """torch.func's grad, vmap and jacrev take the pool as any function, and give what autograd gives."""
    equals_autograd(subject.pool, subject.x[:, None], subject.queries(slice(0, 1)))


POOL_LAWS = by_name(
    oracle,
    derivative,
    second_derivative,
    transfer,
    transforms,
    padding,
    poison,
    order,
    sensitivity,
    batch,
    empty,
    empty_batch,
)


def check_pool(
    factory: Factory,
    laws: Laws = "all",
    *,
    oracle: Oracle | None = None,
    set_size: int = 5,
    by_place: bool = False,
) -> Checked:
    """Run laws on the pools that `factory()` makes, in evaluation and float64.

    laws: "all", or names of POOL_LAWS. oracle: `(params, tokens, queries) -> weights[query][token]`, for one row.
    set_size: tokens of a set. by_place: tokens are known by their places, as experts are. Raises LawError, whose text starts with the law's name.
    """
    return require_kept(PoolSubject(factory, oracle, set_size, by_place), named(laws, POOL_LAWS))


def judge_pool(factory: Factory, laws: Laws = "all") -> Iterator[Verdict]:
    """The verdict of each law as it is reached; a broken law does not end the run."""
    return judge(PoolSubject(factory), named(laws, POOL_LAWS))
