"""The laws of pools and scores, over all entries of POOLS and SCORES, and seen to fail on broken ones."""

from functools import partial

import pytest
import torch
from torch.autograd.function import once_differentiable

import regard
from regard.core.pool import Pool
from regard.nn.scores import SCORES, Additive, Dot, build_score
from regard.pools import POOLS
from regard.reference._scores import score as formula
from regard.testing import POOL_LAWS, SCORE_LAWS, LawError, check_pool, check_score
from tests.pools import oracle
from tests.pools.test_pools import make

D, Q, S = 6, 2, 5
POOL_CASES = {
    "context_query": (partial(make, "context_query", num_queries=Q), oracle.context_query),
    "gate": (partial(make, "gate", query_dim=D, num_queries=Q, num_experts=S), oracle.gate),
    "attention_query_gate": (
        partial(make, "attention_query_gate", num_queries=Q),
        oracle.attention_query_gate,
    ),
    "mean": (partial(make, "mean"), oracle.mean),
    "max": (partial(make, "max"), None),
    "target_query": (
        partial(make, "target_query", activation="sigmoid"),
        oracle.target_query("outer", "sigmoid", False),
    ),
    "cross": (
        lambda: make("cross", mixer=regard.build("softmax", dim=D, num_heads=2)),
        None,
    ),
}


@pytest.mark.parametrize("name", POOLS.names())
def test_every_pool_keeps_the_laws(name):
    factory, formula = POOL_CASES[name]
    checked = check_pool(factory, oracle=formula, set_size=S, by_place=name == "gate")
    assert checked == list(POOL_LAWS)
    assert set(checked.of("cannot judge")) == {
        "cross": {"oracle"},
        "max": {"oracle"},
        "gate": {"padding"},
    }.get(name, set())


@pytest.mark.parametrize("name", SCORES.names())
def test_every_score_keeps_the_laws(name):
    checked = check_score(
        lambda: build_score(name, 8, num_heads=3, max_len=11), oracle=partial(formula, name)
    )
    assert checked == list(SCORE_LAWS) and len(checked.of("passed")) == len(SCORE_LAWS)


class Sound(Pool):
    name = "sound"

    def __init__(self, dim):
        super().__init__(dim)
        self.scale = torch.nn.Parameter(torch.ones(()))

    def weigh(self, x, query, valid):
        scores = self.scale * x.sum(-1)[:, None]
        scores = scores if valid is None else scores.masked_fill(~valid[:, None], -1e9)
        return scores.softmax(-1)


class CountsAll(Sound):
    def weigh(self, x, query, valid):
        return super().weigh(x, query, valid) / (1 + 0.1 * x.shape[1])


class LeansOnTheFirst(Sound):
    def weigh(self, x, query, valid):
        first = torch.arange(x.shape[1]) == 0
        return super().weigh(x, query, valid) * torch.where(first, 1.1, 1.0)


class LooksAtOtherRows(Sound):
    def weigh(self, x, query, valid):
        return super().weigh(x - 1e-6 * x.mean(0, keepdim=True), query, valid)


class IgnoresTheSet(Sound):
    def pool(self, x, query, valid):
        return torch.ones_like(x[:, :1])


class DividesByNothing(Sound):
    def weigh(self, x, query, valid):
        weights = super().weigh(x, query, valid)
        share = weights * self.scale
        return share if valid is None else share / valid.any(1)[:, None, None]


class NeedsASet(Sound):
    def pool(self, x, query, valid):
        return super().pool(x - x.max().detach(), query, valid) + x.max().detach()


class WrongWeights(Sound):
    def weigh(self, x, query, valid):
        return super().weigh(1.001 * x, query, valid)


class _Cubed(torch.autograd.Function):
    """x^3, with a backward by hand that autograd takes for a constant."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return 3 * dy * ctx.saved_tensors[0] ** 2


class HasOneDerivative(Sound):
    def weigh(self, x, query, valid):
        return super().weigh(_Cubed.apply(x), query, valid)


def softmax_of_sums(params, tokens, queries):
    return [oracle.softmax([params["scale"] * x.sum() for x in tokens])]


@pytest.mark.parametrize(
    ("law", "cls"),
    [
        ("oracle", WrongWeights),
        ("padding", CountsAll),
        ("order", LeansOnTheFirst),
        ("batch", LooksAtOtherRows),
        ("sensitivity", IgnoresTheSet),
        ("empty", DividesByNothing),
        ("empty_batch", NeedsASet),
        ("second_derivative", HasOneDerivative),
        ("transforms", HasOneDerivative),
    ],
)
def test_a_broken_pool_is_caught(law, cls):
    check_pool(lambda: Sound(D), law, oracle=softmax_of_sums)
    with pytest.raises(LawError, match=f"^{law}: sound"):
        check_pool(lambda: cls(D), law, oracle=softmax_of_sums)


def test_poison_is_caught_when_a_pool_clears_nothing(monkeypatch):
    monkeypatch.setattr("regard.core.pool.clear", lambda x, valid: x)
    with pytest.raises(LawError, match=r"^poison: sound"):
        check_pool(lambda: Sound(D), "poison")


class WrongScale(Dot):
    def pairs(self, q, k):
        return 1.001 * super().pairs(q, k)


class CentresKeys(Dot):
    def keys(self, k, position=None):
        return k - k.mean(-2, keepdim=True)


class IgnoresPositions(Dot):
    def keys(self, k, position=None):
        return k * torch.arange(1, k.shape[-2] + 1)[:, None]


class NeedsTwoKeys(Dot):
    def pairs(self, q, k):
        return super().pairs(q, k) / (0 if k.shape[-2] == 1 else 1)


class DividesByTheNorm(Dot):
    def queries(self, q):
        return q / q.norm(dim=-1, keepdim=True)


@pytest.mark.parametrize(
    ("law", "cls"),
    [
        ("formula", WrongScale),
        ("mask", CentresKeys),
        ("steps", IgnoresPositions),
        ("shapes", NeedsTwoKeys),
        ("gradient", DividesByTheNorm),
    ],
)
def test_a_broken_score_is_caught(law, cls):
    with pytest.raises(LawError, match=f"^{law}: dot"):
        check_score(lambda: cls(8, num_heads=3), law, oracle=partial(formula, "dot"))


def test_a_score_without_an_oracle_is_not_judged_whole():
    assert "formula" in check_score(lambda: Additive(8, num_heads=3)).of("cannot judge")
