"""The way of one call: the functions of the package that a mechanism passes, as a profiler counts them, generators and lambdas aside.

A second forward of 1,200 padded tokens, causal where the mechanism has it, at default options. The plain form is what runs without
`regard.fast`. Numbers may only fall.
"""

import inspect
import sys
from collections import Counter
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


def files(found: Counter) -> set[str]:
    return {file for file, _ in found}


MEMBERS = "it is made of other mechanisms, whose ways are counted with its own"
OVER: dict[str, tuple[str, dict[str, int]]] = {
    "head_groups": (MEMBERS, {"functions": 43, "files": 11}),
    "mixture": (MEMBERS, {"files": 9}),
    "flash": ("its unit, its turned views and its squared relu are those of gau", {"files": 9}),
    "transformer_xl": ("its terms of distance come from the sinusoids of positions", {"files": 10}),
    "scalar_decay": ("its sums are those of linear attention", {"files": 9}),
}
"""Name -> why it is over some limits, and what it passes there."""


@pytest.mark.parametrize("name", regard.MIXERS.names())
def test_a_mechanism_passes_few_functions_and_padding_and_replacements_add_few(name):
    found, deep = passed(name, plain=True, padded=True)
    way = Way(len(found), len(files(found)), deep, found.total())
    _, over = OVER.get(name, ("", {}))
    limits = LIMITS._replace(**over)
    assert all(n <= most for n, most in zip(way, limits, strict=True)), (way, limits)
    told = {of: getattr(way, of) for of in over}
    assert told == over and all(n > getattr(LIMITS, of) for of, n in over.items()), "lower it"
    bare, _ = passed(name, plain=True, padded=False)
    assert way.calls < 2 * bare.total()
    fast, _ = passed(name, plain=False, padded=True)
    more = len(fast.keys() - found.keys()), len(files(fast) - files(found))
    assert more[0] <= MORE[0] and more[1] <= MORE[1], more
