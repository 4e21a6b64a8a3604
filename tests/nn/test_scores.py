"""Every score is its formula's, and has the properties that its formula gives it."""

import pytest
import torch

import regard
from regard import OptionError
from regard.cli import main
from regard.nn.scores import SCORES, Score, build_score
from regard.reference._scores import FORMULAS
from regard.testing.counting import count
from regard.testing.subject import normal


def test_every_score_has_a_formula_in_its_class_and_in_the_oracle(capsys):
    for cls in SCORES.values():
        assert cls.formula and "formula" in vars(cls)
        assert main(["show", cls.name]) == 0
        assert cls.formula in " ".join(capsys.readouterr().out.split())
    assert set(FORMULAS) == set(SCORES.names())


class Distance(Score):
    """-|q - k|^2"""

    name = "distance"
    product = False

    def pairs(self, q, k):
        return -((q.unsqueeze(-2) - k.unsqueeze(-3)) ** 2).sum(-1)


def test_a_users_own_score_needs_no_entry():
    mixer = regard.build("scored", dim=24, num_heads=3, score=Distance).double()
    x = normal(2, 5, 24)
    q, k = mixer.heads.queries(x), mixer.heads.keys(x)
    expected = (-(torch.cdist(q, k) ** 2)).softmax(-1)
    torch.testing.assert_close(mixer.attention_map(x), expected)


def test_additive_starts_between_the_bounds_of_its_width_and_holds_no_hidden_layer_of_all_pairs():
    v = build_score("additive", 8, num_heads=3, options={"hidden_dim": 25}).v
    assert 0.15 < v.abs().max() <= 0.2 and v.min() < 0 < v.max()
    T = 2048
    with torch.device("meta"):
        options = {"score": "additive", "score_options": {"hidden_dim": 32}}
        mixer = regard.build("scored", dim=24, num_heads=3, **options)
        x = torch.empty(1, T, 24, requires_grad=True)
    used = count(lambda: mixer(x, mask=regard.Mask(causal=True)).sum().backward()).peak_bytes
    assert used < 3 * T * T * 4  # one float for every pair and head; the hidden layer has 32


class Short(Distance):
    """One number for all queries."""

    name = "short"

    def pairs(self, q, k):
        return k.sum(-1)[..., None, :]


def test_scores_that_are_no_number_for_each_pair_or_of_how_many_places_are_refused():
    with pytest.raises(OptionError, match="needs max_len"):
        build_score("location", 8)
    with pytest.raises(OptionError, match="Score has no name: declare it in the class"):
        build_score(Score, 8)
    for name in ("scored", "luong_local"):
        with pytest.raises(regard.ShapeError, match="short: scores of two queries and 3 keys"):
            regard.build(name, dim=24, num_heads=3, max_len=32, score=Short)
