"""What no law of pools covers: every activation unit, scores, norms, statistics, refusals."""

import copy
from functools import partial

import pytest
import torch

import regard
from regard import OptionError, ShapeError, UnknownNameError, UnsupportedError
from regard.nn import SCORES
from regard.pools import POOLS, build_pool
from regard.testing import check_pool
from regard.testing.subject import normal
from tests.pools import oracle
from tests.refused import assert_refused

B, S, Q, D = 3, 5, 2, 6


def make(name, **options):
    torch.manual_seed(0)
    pool = build_pool(name, D, **options).double().eval()
    for buffer in pool.buffers():
        buffer.uniform_(0.5, 1.5)
    return pool


OPTIONS = {name: {} for name in POOLS} | {
    "gate": {"query_dim": D, "num_queries": Q, "num_experts": S},
    **{name: {"num_queries": Q} for name in ("context_query", "attention_query_gate")},
    "target_query": {"activation": "sigmoid"},
    "cross": {"mixer": regard.build("softmax", dim=D, num_heads=2)},
}
EVERY = {name: make(name, **options) for name, options in OPTIONS.items()}
X, QUERY = normal(B, S, D), normal(B, Q, D, seed=1)
VALID = torch.tensor([[True] * S, [True, False, True, False, False], [False] * S])


@pytest.mark.parametrize("interaction", ["outer", "elementwise", "din_code", "none"])
@pytest.mark.parametrize("unit, normalise", [("dice", False), ("prelu", True), ("sigmoid", False)])
def test_the_activation_unit_is_its_formula(interaction, unit, normalise):
    options = {"interaction": interaction, "activation": unit, "normalise": normalise}
    factory = partial(make, "target_query", hidden_dims=(4, 3), **options)
    formula = oracle.target_query(interaction, unit, normalise)
    assert set(check_pool(factory, "oracle", oracle=formula).of("passed")) == {"oracle"}


def test_max_takes_each_channel_where_it_is_largest():
    for b in range(B):
        largest = [max(range(S), key=lambda s: float(X[b, s, d])) for d in range(D)]
        y = torch.stack([X[b, s, d] for d, s in enumerate(largest)])
        torch.testing.assert_close(EVERY["max"](X)[b, 0], y)
        share = torch.tensor([largest.count(s) / D for s in range(S)]).double()
        torch.testing.assert_close(EVERY["max"].weights(X)[b, 0], share)


def test_gate_weighs_the_experts_that_are_there():
    pool = EVERY["gate"]
    weights = pool.weights(X, QUERY, valid=VALID)
    torch.testing.assert_close(weights.sum(-1), VALID.any(1)[:, None].double().expand(-1, Q))
    full = pool.weights(X, QUERY)[1][:, VALID[1]]
    torch.testing.assert_close(weights[1][:, VALID[1]], full / full.sum(-1, keepdim=True))


@pytest.mark.parametrize("name", ["context_query", "attention_query_gate"])
@pytest.mark.parametrize("score", SCORES.names())
def test_any_score_takes_the_tokens_that_exist(name, score):
    check_pool(partial(make, name, num_queries=Q, score=score, max_len=S), "padding")


def test_keys_are_normed_if_asked():
    pool = make("attention_query_gate", num_queries=Q, norm_keys=True)
    torch.testing.assert_close(pool.weights(100 * X), pool.weights(X), rtol=0, atol=1e-4)


def test_dice_in_the_unit_takes_its_statistics_over_what_is_valid():
    pool = make("target_query", activation="dice").train()
    other = copy.deepcopy(pool)
    y = pool(X, QUERY, valid=VALID)
    more = torch.cat([normal(B, 2, D, seed=7), X], 1)
    valid = torch.cat([torch.zeros(B, 2, dtype=torch.bool), VALID], 1)
    torch.testing.assert_close(other(more, QUERY, valid=valid), y, rtol=0, atol=1e-12)
    torch.testing.assert_close(pool.state_dict(), other.state_dict(), rtol=0, atol=1e-12)
    with pytest.raises(UnsupportedError, match="func cannot carry"):
        torch.func.grad(lambda x: pool(x, QUERY).sum())(X)
    check_pool(partial(make, "target_query", activation="dice"), "empty_batch")
    unit = {"score": "activation_unit", "score_options": {"activation": "dice"}}
    for name, more in (("context_query", {}), ("attention_query_gate", {"num_queries": Q})):
        check_pool(partial(make, name, **unit, **more), ["padding"])


def test_what_does_not_fit_is_refused():
    gate, own = EVERY["gate"], EVERY["context_query"]
    assert_refused(
        (UnknownNameError, "option of target_query", lambda: make("target_query", outer=1)),
        (OptionError, "needs query_dim and num_queries and num_experts", lambda: make("gate")),
        (OptionError, "must be one of", lambda: make("target_query", interaction="inner")),
        (UnsupportedError, "cross", lambda: make("cross", mixer=regard.build("fnet", dim=D))),
        (ShapeError, "its queries are its own", lambda: own(X, QUERY)),
        (ShapeError, "it needs a query", lambda: gate(X)),
        (ShapeError, "must hold 2 queries, got 1", lambda: gate(X, QUERY[:, :1])),
        (ShapeError, "must hold 5 experts, got 4", lambda: gate(X[:, :4], QUERY)),
    )
