"""The laws of a pool: x [B S D], query [B Q K] -> y [B Q D]."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from regard.core.pool import Pool
from regard.testing.laws.second_derivative import equals_finite_differences
from regard.testing.subject import gradients
from regard.testing.verdicts import (
    Checked,
    Judged,
    NotDeclared,
    Verdict,
    judge,
    named,
    require,
    require_close,
    require_kept,
)

B, Q, BOUND = 3, 2, 1e-10


class PoolSubject(Judged):
    def __init__(
        self,
        factory: Callable[[], Pool],
        oracle: Callable[..., Any] | None,
        set_size: int,
        by_place: bool,
    ):
        super().__init__()
        self.factory, self.oracle, self.by_place = factory, oracle, by_place
        self.pool = self.make()
        self.name, self.size = self.pool.name, set_size
        self.x = self.numbers(B, set_size, self.pool.dim)
        width, count = self.pool.query_dim, self.pool.num_queries or Q
        self.query = None if width is None else self.numbers(B, count, width, seed=1)
        self.valid = torch.ones(B, set_size, dtype=torch.bool)
        self.valid[1, 1::2] = False
        self.valid[2] = False

    def make(self) -> Pool:
        torch.manual_seed(0)
        return self.factory().double().eval()

    def numbers(self, *shape: int, seed: int = 0) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def queries(self, rows: slice) -> Tensor | None:
        return None if self.query is None else self.query[rows]


def oracle(subject: PoolSubject) -> None:
    """Weights, outputs and gradients are the formula's: `oracle(params, tokens, queries) -> weights[query][token]`."""
    if subject.oracle is None:
        return subject.cannot_judge("weights and outputs: no oracle is given")
    pool, x = subject.pool, subject.x.clone().requires_grad_()
    params = dict(pool.named_parameters()) | dict(pool.named_buffers())
    leaves = [x, *pool.parameters()]
    weights = torch.stack(
        [
            torch.stack(
                [torch.stack(list(row)) for row in subject.oracle(params, list(x[b]), given)]
            )
            for b in range(B)
            for given in [[] if subject.query is None else list(subject.query[b])]
        ]
    )
    y, expected = pool(x, subject.query), weights @ x
    require_close(pool.weights(x, subject.query), weights, BOUND, "weights")
    require_close(y, expected, BOUND, "output")
    for ours, theirs in zip(gradients(y, leaves), gradients(expected, leaves), strict=True):
        require_close(ours, theirs, BOUND, "a gradient")


def padding(subject: PoolSubject) -> None:
    """Invalid tokens are as if absent, and have no weight."""
    weights = subject.pool.weights(subject.x, subject.query, valid=subject.valid)
    out = ~subject.valid[:, None].expand_as(weights)
    require((weights[out] == 0).all(), "a token that is not valid has weight")
    if subject.by_place:
        return subject.cannot_judge("fewer tokens: they are known by their places")
    y = subject.pool(subject.x, subject.query, valid=subject.valid)
    row = slice(1, 2)
    alone = subject.pool(subject.x[row, subject.valid[1]], subject.queries(row))
    require_close(y[row], alone, BOUND, "a padded set is not the set alone")


def poison(subject: PoolSubject) -> None:
    """NaN, Inf and 1e30 where `valid` is False change no output and no gradient."""
    results = []
    for value in (0.0, float("nan"), float("inf"), 1e30):
        x = subject.x.masked_fill(~subject.valid[..., None], value).requires_grad_()
        y = subject.pool(x, subject.query, valid=subject.valid)
        found = [y, *gradients(y, [x, *subject.pool.parameters()])]
        results.append(found)
        require((found[1][~subject.valid] == 0).all(), "a gradient reaches a token that is absent")
        same = all(torch.equal(a, b) for a, b in zip(found, results[0], strict=True))
        require(same, f"{value} at an absent token changes a result")


def order(subject: PoolSubject) -> None:
    """A set has no order: permuted tokens give the same summary, and permuted weights."""
    if subject.by_place:
        raise NotDeclared("tokens are known by their places")
    to = torch.randperm(subject.size, generator=torch.Generator().manual_seed(2))
    moved, query = subject.x[:, to], subject.query
    require_close(subject.pool(moved, query), subject.pool(subject.x, query), BOUND, "output")
    weights = subject.pool.weights(subject.x, query)[..., to]
    require_close(subject.pool.weights(moved, query), weights, BOUND, "weights")


def sensitivity(subject: PoolSubject) -> None:
    """Every token with weight is felt, and tokens have weight."""
    x = subject.x.clone().requires_grad_()
    (found, *_) = gradients(subject.pool(x, subject.query), [x])
    used = (subject.pool.weights(subject.x, subject.query) != 0).any(1)
    require(used.any(), "no token has weight")
    require((found != 0).any(-1)[used].all(), "the output ignores a token that has weight")


def batch(subject: PoolSubject) -> None:
    """A row alone gives what it gives in a batch."""
    y = subject.pool(subject.x, subject.query, valid=subject.valid)
    for b in range(B):
        row = slice(b, b + 1)
        alone = subject.pool(subject.x[row], subject.queries(row), valid=subject.valid[row])
        require_close(alone, y[row], BOUND, f"row {b} alone")


def empty(subject: PoolSubject) -> None:
    """An empty set gives exactly zero, with finite gradients, in training too."""
    for training in (False, True):
        pool = subject.make().train(training)
        x = subject.x.clone().requires_grad_()
        y = pool(x, subject.query, valid=subject.valid)
        require((y[2] == 0).all(), "an empty set is not zero")
        for found in gradients(y, [x, *pool.parameters()]):
            require(torch.isfinite(found).all(), "a gradient is not finite")


def empty_batch(subject: PoolSubject) -> None:
    """A batch of no sets is valid, with gradients of zero, and changes no buffer in training."""
    pool = subject.make().train()
    whole = pool(subject.x, subject.query)
    before = {name: value.clone() for name, value in pool.state_dict().items()}
    x, query = subject.x[:0].clone().requires_grad_(), subject.queries(slice(0, 0))
    for valid in (None, subject.valid[:0]):
        y = pool(x, query, valid=valid)
        weights = pool.weights(x, query, valid=valid)
        shapes = [[0, *z.shape[1:]] for z in (whole, pool.weights(subject.x, subject.query))]
        found = [list(z.shape) for z in (y, weights)]
        require(found == shapes, f"shapes {found}, not {shapes}")
        require(y.requires_grad, "the output has no gradient")
        zero = all(bool((found == 0).all()) for found in gradients(y, [x, *pool.parameters()]))
        require(zero, "a gradient is not zero")
    same = all(torch.equal(value, before[name]) for name, value in pool.state_dict().items())
    require(same, "a buffer changed")


def second_derivative(subject: PoolSubject) -> None:
    """A derivative may be differentiated again."""
    query = subject.query
    equals_finite_differences(lambda x: subject.pool(x, query), subject.pool, subject.x)


def transforms(subject: PoolSubject) -> None:
    """torch.func's vmap of grad gives each row's own gradient."""
    pool, query = subject.pool, subject.query

    def total(x: Tensor, query: Tensor | None) -> Tensor:
        return pool(x[None], None if query is None else query[None]).square().sum()

    in_dims = 0, None if query is None else 0
    found = torch.func.vmap(torch.func.grad(total), in_dims)(subject.x, query)
    x = subject.x.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(pool(x, query).square().sum(), x)
    require_close(found, wanted, BOUND, "a gradient under torch.func")


POOL_LAWS: dict[str, Callable[[PoolSubject], None]] = {
    law.__name__: law
    for law in (
        oracle,
        second_derivative,
        transforms,
        padding,
        poison,
        order,
        sensitivity,
        batch,
        empty,
        empty_batch,
    )
}


def check_pool(
    factory: Callable[[], Pool],
    laws: str | Iterable[str] = "all",
    *,
    oracle: Callable[..., Any] | None = None,
    set_size: int = 5,
    by_place: bool = False,
) -> Checked:
    """Run laws on the pools that `factory()` makes, in evaluation and float64.

    laws: "all", or names of POOL_LAWS. oracle: `(params, tokens, queries) -> weights[query][token]`, for one row.
    set_size: tokens of a set. by_place: tokens are known by their places, as experts are. Raises LawError, whose text starts with the law's name.
    """
    subject = PoolSubject(factory, oracle, set_size, by_place)
    chosen = {name: POOL_LAWS[name] for name in named(laws, POOL_LAWS)}
    return require_kept(subject, judge(subject, chosen))


def judge_pool(factory: Callable[[], Pool], laws: str | Iterable[str] = "all") -> Iterator[Verdict]:
    """The verdict of each law as it is reached; a broken law does not end the run."""
    chosen = {name: POOL_LAWS[name] for name in named(laws, POOL_LAWS)}
    return judge(PoolSubject(factory, None, 5, by_place=False), chosen)
