"""Options of a wrong type, out of range or too large for the memory are refused by name, in every constructor."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass
from functools import partial
from typing import Any, Literal

import pytest
import torch

import regard
from regard import OptionError, UnknownNameError
from regard.core import Above0, Count, Declared, Rate, Seed, Share
from regard.core.annotations import fits, spelled
from regard.core.memory import free_bytes, spelled_bytes
from regard.models import LanguageModelConfig
from regard.pools import build_pool
from tests.refused import assert_refused

PAIRS = "a tuple of tuples (a positive integer, an integer of at least 0)"


def test_forms_and_configurations_check_their_annotations_and_missing_or_unknown_ones_are_named():
    """So does what tests.bad_calls makes."""
    said, softmax = r"\(.*\) must be", regard.MIXERS["softmax"]
    made = partial(LanguageModelConfig, vocab_size=9)
    assert_refused(
        *((OptionError, said + "|tile must be a positive integer", partial(regard.Form, tile=size))
          for size in (0, -1, 2.0, 2**31, True, "4")),
        (OptionError, said, lambda: made(num_layers=10**9)),
        (OptionError, said, lambda: made(position_options={"base": "x"}).build()),
        (OptionError, "softmax needs num_heads: pass num_heads=", lambda: softmax(24)),
        (OptionError, "softmax needs dim and num_heads", softmax),
        (UnknownNameError, r"option of softmax 'num_head'\. Did you mean",
         lambda: softmax(24, num_head=3)),
        (OptionError, r"too many positional arguments\. Pass options by name",
         lambda: softmax(24, 3)),
    )  # fmt: skip


def test_sizes_that_no_memory_holds_are_refused_before_it_is_taken_which_meta_tensors_do_not():
    said = "a tensor .* needs .*iB, and .*iB are free on cpu"
    own = "softmax: its state needs .* are free"
    state = partial(regard.build("softmax", dim=24, num_heads=3).initial_state, 2, max_len=10**9)
    assert_refused(
        (OptionError, said, lambda: regard.build("softmax", dim=10**9, num_heads=1)),
        (OptionError, said, lambda: regard.build("gmlp", dim=8, max_len=10**8)),
        (OptionError, said, lambda: LanguageModelConfig(vocab_size=10**9, dim=10**6).build()),
        (OptionError, said, lambda: build_pool("context_query", 10**6, hidden_dim=10**6)),
        (OptionError, own, state),
    )
    with torch.device("meta"):
        assert regard.build("softmax", dim=10**6, num_heads=1).dim == 10**6
    assert free_bytes(torch.device("meta")) is None
    assert spelled_bytes(3 << 30) == "3.00 GiB" and spelled_bytes(1 << 63) == "8,589,934,592.00 GiB"


@pytest.mark.parametrize(("kind", "good", "bad", "words"), [
    (int, [1, 2**31 - 1], [0, True, 1.0, "1", 2**31, None], "a positive integer"),
    (float, [0, -1.5], [math.inf, math.nan, True, "1"], "a finite number"),
    (bool, [True, False], [0, 1, "true", None], "True or False"),
    (Count, [0, 5], [-1, False], "an integer of at least 0"),
    (Seed, [0, 2**40], [-1, 2**64, 1.0], "an integer of at least 0"),
    (Rate, [0, 0.9], [1, -0.1, math.nan], "at least 0 and below 1"),
    (Share | None, [0, 1, None], [1.1], "from 0 to 1 or None"),
    (Above0, [1e-9], [0, -1], "greater than 0"),
    (Literal["a", 1], ["a", 1], ["b", True, 1.0], "one of 'a', 1"),
    (tuple[int, ...], [(), (1, 2)], [[1], (0,)], "a tuple of positive integers"),
    (tuple[int, int], [(1, 2)], [(1,), 5], "a tuple (a positive integer, a positive integer)"),
    (Sequence[str], [["a"], ("a",)], ["a", [1]], "a sequence of names"),
    (Mapping[str, Any], [{}, {"a": 1}], [{1: 2}, [1]], "a mapping of option names"),
    (Callable[[int], int], [abs, int], [3, "abs"], "a function"),
    (type[ValueError], [OptionError], [int, 3, ValueError()], "a subclass of ValueError"),
    (torch.Tensor, [torch.ones(1)], [1.0], "a Tensor"),
    (tuple[tuple[int, Count], ...], [(), ((1, 0),)], [((0, 1),), (1, 2)], PAIRS),
])  # fmt: skip
def test_what_fits_an_annotation_and_how_it_is_spelled(kind, good, bad, words):
    assert all(fits(kind, value) for value in good)
    assert not any(fits(kind, value) for value in bad)
    assert spelled(kind) == words


def test_a_subclass_of_what_is_declared_is_frozen_with_a_decorator_or_without():
    class Plain(Declared):
        size: int = 1

    @dataclass(frozen=True)
    class Decorated(Plain):
        more: int = 2

    for made in (Plain(size=3), Decorated(size=3, more=4)):
        with pytest.raises(FrozenInstanceError, match="size"):
            made.size = 5
        assert copy.copy(made) == made
        assert made.size == 3
        with pytest.raises(OptionError, match="size"):
            type(made)(size="three")
