"""The way of one call: the functions of the package that a mechanism passes, as a profiler counts them, generators and lambdas aside.

A second forward of 1,200 padded tokens, causal where the mechanism has it, at default options. The plain form is what runs without
`regard.fast`. Numbers may only fall.
"""

import inspect
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import regard
from regard.functional import rows

T = 1200
ROOT = Path(regard.__file__).parent


class Way(NamedTuple):
    functions: int
    files: int
    deep: int
    calls: int


LIMITS = Way(functions=40, files=8, deep=8, calls=100)
MORE = 25, 3
"""Functions and files that a replacement may add."""


def passed(name: str, *, plain: bool, padded: bool) -> tuple[Counter, int]:
    """(file, function) -> calls, and the deepest nesting."""
    torch.manual_seed(0)
    named = plain and "impl" in inspect.signature(regard.MIXERS[name]).parameters
    options = {"impl": "plain"} if named else {}
    mixer = regard.build(name, dim=32, num_heads=4, max_len=T, **options).eval()
    valid = torch.arange(T) < torch.tensor([[T], [T - 100]])
    causal = bool(mixer.capabilities.causal)
    mask = regard.Mask(causal=causal, valid=valid if padded else None)
    x, found, depth = torch.randn(2, T, 32), Counter(), [0, 0]

    def count(frame, event, _):
        code = frame.f_code
        if not code.co_filename.startswith(str(ROOT)) or code.co_name.startswith("<"):
            return
        if event == "call":
            found[code.co_filename, code.co_qualname] += 1
            depth[0] += 1
            depth[1] = max(depth)
        elif event == "return":
            depth[0] -= 1

    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "_FAST", rows._FAST and not plain)
        mixer(x, mask=mask)
        sys.setprofile(count)
        try:
            mixer(x, mask=mask)
        finally:
            sys.setprofile(None)
    return found, depth[1]


@cache
def of_plain(name: str) -> tuple[Counter, int]:
    return passed(name, plain=True, padded=True)


def measured(name: str) -> Way:
    found, deep = of_plain(name)
    return Way(len(found), len({file for file, _ in found}), deep, found.total())


HEADS = "one base splits and merges for all mixers with heads: two functions and a file more than each of its own"
LEAF = "a tile inside the operation calls what all plain forms share: scores, a softmax"
PARTS = "terms of a pattern are parts, which are tiled, and ask each term which keys it has"
TIME = "chunks of time and the states between them are functions of their own inside the sums"
LAYERS = "a convolution, a decay and a norm are layers of their own"
MEMBERS = "it is made of other mechanisms, whose ways are counted with its own"
CHOSEN = "keys are chosen, copied and weighed for one tile of queries after the other"
OVER: dict[str, tuple[str, dict[str, int]]] = {
    **dict.fromkeys(("softmax", "differential"), (LEAF, {"deep": 11})),
    **dict.fromkeys(
        (
            "scored",
            "synthesizer_dense",
            "synthesizer_random",
            "synthesizer_factorized_dense",
            "synthesizer_factorized_random",
            "latent",
        ),
        (LEAF, {"files": 9, "deep": 11}),
    ),
    "luong_local": (LEAF, {"functions": 42, "files": 10, "deep": 12}),
    "local": (HEADS, {"deep": 10}),
    "strided": (PARTS, {"functions": 43, "files": 9, "deep": 10}),
    "global": (PARTS, {"functions": 43, "files": 9, "deep": 10}),
    "head_mix": (MEMBERS, {"functions": 45, "files": 9, "deep": 12}),
    "head_groups": (MEMBERS, {"functions": 53, "files": 13, "deep": 11, "calls": 102}),
    "longformer": (PARTS, {"functions": 41, "files": 9, "deep": 10}),
    "bigbird": (
        "its table of random blocks makes the pattern of a call",
        {"functions": 47, "files": 10, "deep": 10},
    ),
    "reformer": (HEADS, {"functions": 44, "files": 9, "deep": 9}),
    "routing": (LEAF, {"functions": 42, "deep": 11}),
    "sinkhorn": (HEADS, {"files": 9}),
    "linformer": (LEAF, {"files": 9, "deep": 12}),
    **dict.fromkeys(("compressed", "forgetting"), (LEAF, {"functions": 42, "deep": 12})),
    "efficient": (TIME, {"files": 9, "deep": 11}),
    "linear": (TIME, {"files": 9, "deep": 9}),
    "rfa": (TIME, {"files": 9, "deep": 9}),
    "performer": (TIME, {"functions": 42, "files": 9, "deep": 11}),
    "mixture": (MEMBERS, {"functions": 45, "files": 10, "deep": 12, "calls": 113}),
    "fixed_patterns": (LEAF, {"files": 10, "deep": 12}),
    "gau": (HEADS, {"files": 9, "deep": 10}),
    "flash": (HEADS, {"files": 11}),
    "mixed_chunk": (HEADS, {"files": 10, "deep": 9}),
    "transformer_xl": (
        "its scores of distances come from the sinusoids of positions, a tile at a time",
        {"functions": 47, "files": 11, "deep": 13, "calls": 101},
    ),
    "scalar_decay": (LAYERS, {"files": 11, "deep": 10}),
    **dict.fromkeys(("gated_delta", "kimi_delta", "gated_linear"), (LAYERS, {"files": 10})),
    "moba": (CHOSEN, {"functions": 46, "files": 9, "deep": 13, "calls": 105}),
    "indexed": (CHOSEN, {"functions": 46, "files": 9, "deep": 12, "calls": 106}),
    "native_sparse": (CHOSEN, {"functions": 57, "files": 10, "deep": 14, "calls": 278}),
}
"""Name -> why it is over some limits, and what it passes there."""

@pytest.mark.parametrize("name", regard.MIXERS.names())
def test_a_mechanism_passes_few_functions(name):
    way = measured(name)
    limits = LIMITS._replace(**OVER.get(name, ("", {}))[1])
    assert all(n <= most for n, most in zip(way, limits, strict=True)), (way, limits)


@pytest.mark.parametrize("name", regard.MIXERS.names())
def test_padding_does_not_double_the_calls(name):
    bare, _ = passed(name, plain=True, padded=False)
    assert measured(name).calls < 2 * bare.total()


@pytest.mark.parametrize("name", regard.MIXERS.names())
def test_a_replacement_adds_few_functions(name):
    plain, fast = of_plain(name)[0], passed(name, plain=False, padded=True)[0]
    functions = len(fast.keys() - plain.keys())
    files = len({file for file, _ in fast} - {file for file, _ in plain})
    assert functions <= MORE[0] and files <= MORE[1], (functions, files)


def test_exceptions_are_exceptions():
    for name, (_, over) in OVER.items():
        assert all(n > getattr(LIMITS, of) for of, n in over.items()), name
        assert {of: getattr(measured(name), of) for of in over} == over, f"{name}: lower it"
