"""How a tensor lies in memory, and what a compiler knows of its sizes, changes no result."""

import pytest
import torch
from torch.utils._pytree import tree_leaves

from regard.functional import softmax_attention
from tests.bad_calls import Case, functionals


def spread(z: torch.Tensor) -> torch.Tensor:
    """The same numbers, with NaN between neighbours."""
    room = torch.full((*z.shape, 2), torch.nan, dtype=z.dtype)
    room[..., 0] = z
    return room[..., 0]


def turned(z: torch.Tensor) -> torch.Tensor:
    """The same numbers, in memory in the order of the first axis last."""
    return z.movedim(0, -1).contiguous().movedim(-1, 0)


with torch.random.fork_rng(devices=[]):
    torch.manual_seed(0)
    CASES = [*functionals()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_functions_read_tensors_of_any_strides(case: Case):
    given = dict(case.given)
    expected = tree_leaves(case.call(**given))
    floats = [key for key, z in given.items() if torch.is_tensor(z) and z.is_floating_point()]
    for key in floats:
        for laid in (spread, turned):
            found = tree_leaves(case.call(**given | {key: laid(given[key])}))
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one, other)
    assert floats


def test_heads_may_be_a_symbol_to_a_compiler():
    """torch.compile(dynamic=True) sees the number of heads as one that may change."""
    torch.compiler.reset()
    generator = torch.Generator().manual_seed(0)
    how = {"fullgraph": True, "dynamic": True, "backend": "eager"}
    compiled = torch.compile(lambda q, k, v: softmax_attention(q, k, v), **how)
    for heads, groups in ((2, 2), (6, 6), (6, 3)):
        q = torch.randn(2, heads, 5, 4, generator=generator)
        k, v = torch.randn(2, 2, groups, 5, 4, generator=generator)
        torch.testing.assert_close(compiled(q, k, v), softmax_attention(q, k, v))
