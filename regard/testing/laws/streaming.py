"""Any chunking of `extend` gives what causal `forward` gives, with gradients, ragged rows, reordered beams, and donation."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap
from torch.utils._pytree import tree_map

from regard.core import CAUSAL, Mask, Mixer, growth, tensors
from regard.testing.subject import (
    B,
    LawError,
    S,
    Subject,
    T,
    require,
    require_close,
    require_same,
    results,
    seeded,
)

CHUNKS = ((T,), (1,) * T, (4, 1, 5, 3), (2, 11))
LEFT = torch.arange(T) >= torch.tensor([[0], [5]])
BOUND = 1e-10
FAR = 512  # tokens at which a state has grown, if it grows


def streaming(subject: Subject) -> None:
    """Any chunking of `extend` gives what causal `forward` gives, with gradients, ragged rows, reordered beams, and donation.

    `streaming="segment"`: one call gives it; what later calls see of earlier ones is the mechanism's own.
    Where lengths cannot be read without waiting, as on a device, a step with reserved room changes no shape of the state.
    """
    subject.require_declared("streaming")
    mixer = subject.make()
    x = subject.x
    exact = subject.streams
    _equals_forward(subject, mixer, x, CHUNKS if exact else CHUNKS[:1])
    for tracked in (True, False):  # a cache may reuse storage where no gradient needs it
        with torch.set_grad_enabled(tracked):
            _input_state_is_a_value(mixer, x)
    _branches(mixer, x)
    _single_tokens(subject, mixer, x)
    _state_size(subject, mixer)
    _reordered(mixer, x)
    if not exact:
        _rows_are_their_own(subject, mixer, x)
    elif subject.can.cross and subject.can.bidirectional:
        context = subject.tokens(B, S, seed=7)
        column = torch.arange(S)
        sides = (column < torch.tensor([[4], [S]]), column >= torch.tensor([[S], [2]]))
        for valid in (None, *sides) if subject.can.padding else (None,):
            require_streamed(
                mixer,
                x,
                CHUNKS[2],
                "cross: extend with a context in the state",
                context=context,
                valid=valid,
            )


def require_streamed(
    mixer: Mixer,
    x: Tensor,
    chunks: Sequence[int],
    what: str,
    *,
    bound: float = BOUND,
    valid: Tensor | None = None,
    context: Tensor | None = None,
    max_len: int | None = None,
    donate: bool = False,
) -> Any:
    """`extend` by chunks of these sizes gives what `forward` gives; returns the state behind the last. valid: of a context, where there is one."""
    own, beside = (valid, None) if context is None else (None, valid)
    with torch.set_grad_enabled(torch.is_grad_enabled() and not donate):
        expected = mixer(x, context=context, mask=Mask(causal=context is None, valid=valid))
        state = mixer.initial_state(len(x), max_len=max_len, context=context, valid=beside)
        y, state = feed(mixer, x, state, chunks, valid=own, donate=donate)
    require_close(y, expected, bound, f"{what}, chunks {chunks}{', donated' * donate}")
    return state


def feed(
    mixer: Mixer,
    x: Tensor,
    state: Any,
    chunks: Sequence[int],
    *,
    donate: bool = False,
    **rows: Tensor | None,
) -> tuple[Tensor, Any]:
    """Outputs and state of `extend` by chunks of these sizes. rows: its `valid` and `documents`, [B T]."""
    outputs = []
    start = 0
    for size in chunks:
        part = slice(start, start + size)
        given = {name: None if z is None else z[:, part] for name, z in rows.items()}
        y, state = mixer.extend(x[:, part], state, donate=donate, **given)
        outputs.append(y)
        start += size
    return torch.cat(outputs, 1), state


def _equals_forward(
    subject: Subject, mixer: Mixer, x: Tensor, chunkings: Sequence[tuple[int, ...]]
) -> None:
    interior = torch.rand(B, T, generator=seeded(4)) < 0.6
    rows = {"whole": None, "left padding": LEFT, "interior padding": interior}
    for (name, valid), chunks, donate in product(rows.items(), chunkings, (False, True)):
        if valid is None or subject.can.padding:
            z = x if valid is None else x.masked_fill(~valid[..., None], torch.nan)
            state = require_streamed(mixer, z, chunks, name, valid=valid, donate=donate)
            count = torch.full((B,), T) if valid is None else valid.sum(1)
            counts = torch.equal(state.length, count)
            require(counts, f"{name}: state.length must count valid tokens")
    room = min(T + 3, subject.longest)
    require_streamed(mixer, x, chunkings[-1], "with reserved room", max_len=room)
    single = subject.make(torch.float32)
    state = require_streamed(single, x.float(), chunkings[-1], "float32", bound=1e-5)
    for field in tensors(state).values():
        fits = field.dtype == torch.float32 or not field.is_floating_point()
        require(
            fits and field.shape[0] == B, "the state must be batch first and in the module's dtype"
        )
    x = x.clone().requires_grad_()
    expected = results(mixer, mixer(x, mask=CAUSAL), x=x)
    for chunks in chunkings[1:] or chunkings:
        y, _ = feed(mixer, x, mixer.initial_state(B), chunks)
        require_same(results(mixer, y, x=x), expected, BOUND, "through the state")


def _input_state_is_a_value(mixer: Mixer, x: Tensor) -> None:
    _, state = feed(mixer, x[:, :5], mixer.initial_state(B, max_len=T), (3, 2))
    before = [field.clone() for field in tensors(state).values()]
    mixer.extend(x[:, 5:9], state)
    same = all(map(torch.equal, before, tensors(state).values()))
    require(same, "extend changed the state that was passed in without donate=True")


def _single_tokens(subject: Subject, mixer: Mixer, x: Tensor) -> None:
    """Single tokens after a prompt, rows alike and ragged, of which none is said to be absent.

    Also where no value may be read, so that a CUDA graph could hold the step.
    """
    exact = subject.streams
    begins = 6 if exact else T - 1
    rows = (None, LEFT) if subject.can.padding else (None,)
    for valid, read, donate in product(rows, (True, False), (False, True)):
        z = x if valid is None else x.masked_fill(~valid[..., None], torch.nan)
        expected = mixer(z, mask=Mask(causal=True, valid=valid))
        steps = partial(_steps, mixer, begins=begins, donate=donate)
        with torch.set_grad_enabled(not donate):
            y, before, after = (steps if read else _without_values(steps))(z, valid)
        what = f"{'single tokens' if read else 'no value read'}{', donated' * donate}"
        require(read or before == after, f"{what}: a step changed shapes from {before} to {after}")
        if exact:
            require_close(y, expected, BOUND, what)


def _steps(mixer: Mixer, x: Tensor, valid: Tensor | None, *, begins: int, donate: bool):
    """Outputs, and the shapes of the state after the prompt, a token and a chunk, and after all steps."""
    own = None if valid is None else valid[:, :begins]
    state = mixer.initial_state(len(x), max_len=T)
    y, state = feed(mixer, x[:, :begins], state, (1, begins - 1), valid=own, donate=donate)
    before = _shapes(state)
    more, state = feed(mixer, x[:, begins:], state, (1,) * (T - begins), donate=donate)
    return torch.cat([y, more], 1), before, _shapes(state)


def _shapes(state: Any) -> list[tuple[int, ...]]:
    return [tuple(field.shape) for field in tensors(state).values()]


def _without_values(steps: Callable) -> Callable:
    """`steps`, row by row inside torch.func, where no kernel reads the values of tensors."""

    def mapped(x: Tensor, valid: Tensor | None) -> Any:
        shapes: list = []

        def once(x: Tensor, valid: Tensor | None) -> Tensor:
            y, before, after = steps(x[None], None if valid is None else valid[None])
            shapes[:] = before, after
            return y[0]

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop")
            return vmap(once, (0, None if valid is None else 0))(x, valid), *shapes

    return mapped


@torch.no_grad()
def _branches(mixer: Mixer, x: Tensor) -> None:
    """Two continuations of one state that was not donated stay apart when each gives its own storage away."""
    for begin in (1, 5, 6):
        prompt = x[:, :begin]
        rest = T - begin - 1
        _, state = feed(mixer, prompt, mixer.initial_state(B, max_len=T), (begin,), donate=True)
        ends = [z[:, begin:].split(1, 1) for z in (x, x.flip(1))]
        states = [mixer.extend(end[0], state)[1] for end in ends]
        outputs: list[list[Tensor]] = [[], []]
        for step, branch in product(range(1, rest + 1), (0, 1)):
            y, states[branch] = mixer.extend(ends[branch][step], states[branch], donate=True)
            outputs[branch].append(y)
        for end, found in zip(ends, outputs, strict=True):
            alone = torch.cat([prompt, *end], 1)
            expected, _ = feed(mixer, alone, mixer.initial_state(B), (begin, *[1] * (rest + 1)))
            require_close(
                torch.cat(found, 1),
                expected[:, begin + 1 :],
                BOUND,
                f"two branches after {begin} tokens",
            )


def _reordered(mixer: Mixer, x: Tensor) -> None:
    """Beams: rows of a state may be picked, repeated and dropped."""
    _, state = feed(mixer, x[:, :6], mixer.initial_state(B), (6,))
    pick = torch.tensor([1, 0, 1])
    y, _ = feed(mixer, x[:, 6:], state, (3, 4))
    picked, _ = feed(mixer, x[pick, 6:], tree_map(lambda z: z[pick], state), (3, 4))
    require_close(picked, y[pick], BOUND, "reordered rows")


def _rows_are_their_own(subject: Subject, mixer: Mixer, x: Tensor) -> None:
    """A row of several segments gets what it gets alone, also ragged."""
    valid = LEFT if subject.can.padding else torch.ones(B, T, dtype=torch.bool)
    given = valid if subject.can.padding else None
    together, state = feed(mixer, x, mixer.initial_state(B), CHUNKS[2], valid=given)
    more, _ = mixer.extend(x, state)
    for row, own in enumerate(valid):
        sizes = [int(part.sum()) for part in own.split(CHUNKS[2]) if part.any()]
        alone, state = feed(mixer, x[row, own][None], mixer.initial_state(1), sizes)
        require_close(together[row, own], alone[0], BOUND, f"segments {CHUNKS[2]}: row {row} alone")
        more_alone, _ = mixer.extend(x[row][None], state)
        require_close(more[row], more_alone[0], BOUND, f"a segment more: row {row} alone")


def _state_size(subject: Subject, mixer: Mixer) -> None:
    declared = subject.can.state
    if declared is None:
        raise LawError("streaming is declared and the state's size is not")
    mixer = subject.make(max_len=FAR)
    far = FAR if subject.can.any_length else min(FAR, mixer.max_len or FAR)
    sizes = []
    for length in (1, far):
        _, state = mixer.extend(subject.tokens(B, length), mixer.initial_state(B))
        sizes.append(sum(field.numel() for field in tensors(state).values()))
    grows = growth(declared, 4096, 65536) > 0
    fits = sizes[0] < sizes[1] if grows else sizes[0] == sizes[1]
    said = f"declared {'to grow' if grows else 'constant'} ({declared})"
    require(fits, f"the state is {said}, and has {sizes} numbers")
