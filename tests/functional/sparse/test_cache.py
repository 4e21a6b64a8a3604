"""A window's store that single tokens are put behind, and what is let go of together, beyond the lengths of the laws."""

import pytest
import torch

from regard import Eager
from regard.core import Mask
from regard.functional import pattern_attention
from regard.functional.softmax.dense import softmax_attention
from regard.functional.sparse.cache import extend, initial_state
from regard.functional.sparse.patterns import (
    Block,
    First,
    PerHead,
    Scattered,
    Strided,
    Window,
    draw_blocks,
)

TABLE = draw_blocks(2, 12, 1, seed=3, causal=True, first_is_global=False)
CHUNK = 8
SINGLES = 3 * CHUNK + 1  # there is room for CHUNK, or for the reach again, after the store


@pytest.mark.parametrize(
    "pattern",
    [
        Window(3, 3),
        Window(2, 2, dilation=3),
        Window(3, 3) | First(2),
        Window(0, 0) | First(1),
        Window(0, 0),
    ],
    ids=str,
)
@pytest.mark.parametrize("begin", [5, 1])
def test_single_tokens_for_long(pattern, begin):
    chunks = [begin, *[1] * SINGLES, 4, *[1] * SINGLES]
    valid = torch.ones(2, sum(chunks), dtype=torch.bool)
    valid[1, begin + SINGLES + 2 : begin + SINGLES + 4] = False  # the end of the chunk of four
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 2, 2, len(valid[0]), 4, generator=generator, dtype=torch.float64)
    state, outputs, start = initial_state(q, 2, 2, 4, pattern, None), [], 0
    most = pattern.sinks + pattern.reach
    for n in chunks:
        new = slice(start, start + n)
        some = valid[:, new] if n == 4 else None
        y, state = extend(
            *(z[:, :, new] for z in (q, k, v)),
            state,
            pattern=pattern,
            valid=some,
            donate=True,
            impl=Eager(chunk=CHUNK),
        )
        outputs.append(y)
        start += n
        assert state.position.shape[1] <= most + max(most, CHUNK)
        assert n == 1 or state.position.shape[1] == most
    streamed = torch.cat(outputs, dim=2)
    for row in range(2):
        alone = [z[row, :, valid[row]][None] for z in (q, k, v)]
        expected = pattern_attention(*alone, pattern=pattern, mask=Mask(causal=True))
        torch.testing.assert_close(streamed[row, :, valid[row]][None], expected)


@pytest.mark.parametrize(
    "pattern",
    [
        Strided(8),
        PerHead((Strided(8), Window(3, 3) | Strided(16))),  # heads that see more and fewer keys
        Block(4) | Scattered(4, TABLE),
    ],
    ids=["strided", "per head", "scattered"],
)
def test_a_single_token_is_compared_with_the_keys_that_it_sees(pattern, monkeypatch):
    """In rows of two lengths, with the gradients of whatever is stored."""
    met = []

    def attention(q, k, v, **others):
        met.append(k.shape[2])
        return softmax_attention(q, k, v, **others)

    monkeypatch.setattr("regard.functional.sparse.cache.softmax_attention", attention)
    valid = torch.ones(2, 48, dtype=torch.bool)
    valid[1, 5:8] = False
    generator = torch.Generator().manual_seed(0)
    given = torch.randn(3, 2, 2, 48, 4, generator=generator, dtype=torch.float64).requires_grad_()
    q, k, v = given
    state, outputs = initial_state(q, 2, 2, 4, pattern, 48), []
    for new in (slice(0, 8), *(slice(at, at + 1) for at in range(8, 48))):
        some = valid[:, new] if new.start == 0 else None
        y, state = extend(*(z[:, :, new] for z in (q, k, v)), state, pattern=pattern, valid=some)
        outputs.append(y)
    streamed = torch.cat(outputs, dim=2)
    for row in range(2):
        alone = [z[row, :, valid[row]][None] for z in (q, k, v)]
        ours, theirs = (
            streamed[row, :, valid[row]][None],
            pattern_attention(*alone, pattern=pattern, mask=Mask(causal=True)),
        )
        torch.testing.assert_close(ours, theirs)
        dy = torch.randn(ours.shape, generator=generator, dtype=torch.float64)
        both = (torch.autograd.grad(z, given, dy, retain_graph=True)[0] for z in (ours, theirs))
        torch.testing.assert_close(*both)
    assert met[-1] <= 48 // 2
