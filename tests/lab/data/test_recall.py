import numpy as np
import pytest

from regard.core import OptionError
from regard.lab.data.synthetic import IGNORED, generate_recall

OPTIONS = {"length": 40, "num_pairs": 5, "vocab_size": 30, "spread": 0.5, "seed": 2}


def test_each_key_is_asked_once_and_its_value_is_the_label():
    tokens, labels = generate_recall(200, **OPTIONS)
    for row, asked in zip(tokens.tolist(), labels.tolist(), strict=True):
        pairs = dict(zip(row[0:10:2], row[1:10:2], strict=True))
        assert len(pairs) == 5 and max(pairs) < 15 <= min(pairs.values())
        places = [place for place, label in enumerate(asked) if label != IGNORED]
        assert {row[place]: asked[place] for place in places} == pairs and len(places) == 5
        assert min(places) >= 10 and all(row[place + 1] == asked[place] for place in places)


def test_no_token_is_padding_and_the_seed_decides():
    one, same = generate_recall(50, **OPTIONS), generate_recall(50, **OPTIONS)
    other = generate_recall(50, **{**OPTIONS, "seed": 3})
    assert one.tokens.min() > 0 and one.tokens.max() < 30
    assert np.array_equal(one.tokens, same.tokens) and not np.array_equal(one.tokens, other.tokens)


def test_a_small_spread_asks_early():
    def mean_place(spread):
        labels = generate_recall(500, **{**OPTIONS, "length": 200, "spread": spread}).labels
        return np.nonzero(labels != IGNORED)[1].mean()

    assert mean_place(0.01) + 20 < mean_place(1.0)
    assert mean_place(1.0) == pytest.approx((10 + 198) / 2, abs=4)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"num_pairs": 11}, r"length \(40\) must be at least"),
        ({"vocab_size": 11}, r"vocab_size \(11\) must be at least 12"),
        ({"spread": 0.0}, "spread"),
        ({"length": -1}, r"length \(-1\)"),
    ],
)
def test_impossible_options_are_refused(options, words):
    with pytest.raises(OptionError, match=words):
        generate_recall(5, **{**OPTIONS, **options})
