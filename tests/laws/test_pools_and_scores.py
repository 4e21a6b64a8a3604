"""The laws of pools and scores, over all entries of POOLS and SCORES, and seen to fail on broken ones."""

from functools import partial

import pytest
import torch

from regard.core import Pool
from regard.nn.scores import SCORES, Additive, Dot, build_score
from regard.pools import POOLS
from regard.reference._scores import scores
from regard.testing import POOL_LAWS, SCORE_LAWS, LawError, check_pool, check_score
from tests.laws.test_broken import Squared
from tests.pools import oracle
from tests.pools.test_pools import OPTIONS, D, S, make

ORACLES = {name: getattr(oracle, name, None) for name in POOLS.names()}
ORACLES["target_query"] = oracle.target_query("outer", "sigmoid", False)


@pytest.mark.parametrize("name", POOLS.names())
def test_every_pool_keeps_the_laws(name):
    factory, formula = partial(make, name, **OPTIONS[name]), ORACLES[name]
    checked = check_pool(factory, oracle=formula, set_size=S, by_place=name == "gate")
    assert checked == list(POOL_LAWS)
    cannot = {"cross": {"oracle"}, "max": {"oracle"}, "gate": {"padding"}}
    assert set(checked.of("cannot judge")) == cannot.get(name, set())


def formula(name, params, h, q, k, j):
    """The score of one query with one key, the one at position j."""
    return scores(name, params, h, q, k[None], [j])[j]


@pytest.mark.parametrize("name", SCORES.names())
def test_every_score_keeps_the_laws(name):
    factory = partial(build_score, name, 8, num_heads=3, max_len=11)
    checked = check_score(factory, oracle=partial(formula, name))
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


def softmax_of_sums(params, tokens, queries):
    return [oracle.softmax([params["scale"] * x.sum() for x in tokens])]


def leaning(self, x, query, valid):
    """The first token has more weight than is its due."""
    weights = Sound.weigh(self, x, query, valid)
    return weights * torch.where(torch.arange(x.shape[1]) == 0, 1.1, 1.0)


def divided(self, x, query, valid):
    weights = Sound.weigh(self, x, query, valid)
    return weights if valid is None else weights * self.scale / valid.any(1)[:, None, None]


def shifted(self, x, query, valid):
    """A set without tokens has no largest value."""
    return Pool.pool(self, x - x.max().detach(), query, valid) + x.max().detach()


def half(self, x, query, valid):
    """The right value, and half its gradient."""
    y = Pool.pool(self, x, query, valid)
    return (y + y.detach()) / 2


def drawn(self, dim):
    Sound.__init__(self, dim)
    self.drawn = torch.rand(())


def weighs(change):
    """Weights of changed tokens."""
    return {"weigh": lambda self, x, *given: Sound.weigh(self, change(x), *given)}


BROKEN_POOLS = {
    "oracle": weighs(lambda x: 1.001 * x),
    "padding": weighs(lambda x: x / x.shape[1]),
    "order": {"weigh": leaning},
    "batch": weighs(lambda x: x - 1e-6 * x.mean(0, keepdim=True)),
    "sensitivity": {"pool": lambda self, x, query, valid: torch.ones_like(x[:, :1])},
    "empty": {"weigh": divided},
    "empty_batch": {"pool": shifted},
    "derivative": {"pool": half},
    "second_derivative": weighs(Squared.apply),
    "transfer": {"__init__": drawn, "weigh": lambda self, *z: Sound.weigh(self, *z) * self.drawn},
    "transforms": weighs(Squared.apply),
}


@pytest.mark.parametrize("law", BROKEN_POOLS)
def test_a_broken_pool_is_caught(law):
    check_pool(lambda: Sound(D), law, oracle=softmax_of_sums)
    with pytest.raises(LawError, match=f"^{law}: sound"):
        broken = type("Broken", (Sound,), BROKEN_POOLS[law])
        check_pool(lambda: broken(D), law, oracle=softmax_of_sums)


def test_poison_is_caught_when_a_pool_clears_nothing(monkeypatch):
    monkeypatch.setattr("regard.core.pool.clear", lambda x, valid: x)
    with pytest.raises(LawError, match=r"^poison: sound"):
        check_pool(lambda: Sound(D), "poison")


BROKEN_SCORES = {
    "formula": {"pairs": lambda score, q, k: 1.001 * Dot.pairs(score, q, k)},
    "mask": {"keys": lambda score, k, position=None: k - k.mean(-2, keepdim=True)},
    "steps": {"keys": lambda score, k, position=None: k * torch.arange(k.shape[-2])[:, None]},
    "shapes": {"pairs": lambda score, q, k: Dot.pairs(score, q, k) / (k.shape[-2] > 1)},
    "gradient": {"queries": lambda score, q: q / q.norm(dim=-1, keepdim=True)},
}


@pytest.mark.parametrize("law", BROKEN_SCORES)
def test_a_broken_score_is_caught(law):
    broken = type("Broken", (Dot,), BROKEN_SCORES[law])
    with pytest.raises(LawError, match=f"^{law}: dot"):
        check_score(lambda: broken(8, num_heads=3), law, oracle=partial(formula, "dot"))


def test_a_score_without_an_oracle_is_not_judged_whole():
    assert "formula" in check_score(lambda: Additive(8, num_heads=3)).of("cannot judge")
