"""Any chunking of `extend` gives what causal `forward` gives, with gradients, ragged rows, reordered beams, and donation.

`streaming="segment"`: one call gives it; what later calls see of earlier ones is the mechanism's own.
Where lengths cannot be read without waiting, as on a device, a step with reserved room changes no shape of the state.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from regard.core import Mask, Mixer, growth
from regard.core.states import tensors
from regard.testing.subject import B, S, Subject, T, gradients, require, require_close

CHUNKS = ((T,), (1,) * T, (4, 1, 5, 3), (2, 11))


def law(subject: Subject) -> None:
    subject.require_declared("streaming")
    mixer = subject.make()
    chunkings = CHUNKS if subject.can.streaming == "exact" else CHUNKS[:1]
    _equals_forward(subject, mixer, chunkings)
    _float32(subject, chunkings[-1])
    for chunks in chunkings[1:] or chunkings:
        _gradients(subject, mixer, chunks)
    for tracked in (True, False):  # a cache may reuse storage where no gradient needs it
        with torch.set_grad_enabled(tracked):
            _input_state_is_a_value(subject, mixer)
    _branches(subject, mixer)
    _unread(subject, mixer)
    _state_size(subject, mixer)
    if subject.can.padding:
        _ragged(subject, mixer, chunkings)
    if subject.can.streaming == "segment":
        _rows_are_their_own(subject, mixer)
        return
    _reordered(subject, mixer)
    if subject.can.cross:
        _cross(subject, mixer)


def _equals_forward(subject: Subject, mixer: Mixer, chunkings) -> None:
    x = subject.tokens(B, T)
    full = mixer(x, mask=Mask(causal=True))
    for chunks in chunkings:
        for donate in (False, True):
            with torch.set_grad_enabled(not donate):
                y, _ = feed(mixer, x, mixer.initial_state(B), chunks, donate=donate)
            require_close(y, full, 1e-10, f"chunks {chunks}{', donated' if donate else ''}")
    state = mixer.initial_state(B, max_len=T + 3)
    reserved, _ = feed(mixer, x, state, chunkings[-1], donate=False)
    require_close(reserved, full, 1e-10, "with reserved room")


def feed(mixer: Mixer, x: Tensor, state, chunks, *, valid=None, donate=False):
    outputs, start = [], 0
    for size in chunks:
        part = slice(start, start + size)
        y, state = mixer.extend(
            x[:, part], state, valid=None if valid is None else valid[:, part], donate=donate
        )
        outputs.append(y)
        start += size
    return torch.cat(outputs, dim=1), state


def _float32(subject: Subject, chunks) -> None:
    mixer = subject.make(torch.float32)
    x = subject.tokens(B, T, dtype=torch.float32)
    y, state = feed(mixer, x, mixer.initial_state(B), chunks)
    require_close(y, mixer(x, mask=Mask(causal=True)), 1e-5, "float32")
    for field in tensors(state).values():
        fits = field.dtype == torch.float32 or not field.is_floating_point()
        require(
            fits and field.shape[0] == B, "the state must be batch first and in the module's dtype"
        )


def _gradients(subject: Subject, mixer: Mixer, chunks: tuple[int, ...]) -> None:
    x = subject.tokens(B, T).requires_grad_()
    leaves = [x, *mixer.parameters()]
    streamed, _ = feed(mixer, x, mixer.initial_state(B), chunks)
    expected = gradients(mixer(x, mask=Mask(causal=True)), leaves)
    for ours, theirs in zip(gradients(streamed, leaves), expected, strict=True):
        require_close(ours, theirs, 1e-10, "gradients through the state")


def _input_state_is_a_value(subject: Subject, mixer: Mixer) -> None:
    x = subject.tokens(B, T)
    _, state = feed(mixer, x[:, :5], mixer.initial_state(B, max_len=T), (3, 2))
    before = [field.clone() for field in tensors(state).values()]
    mixer.extend(x[:, 5:9], state)
    same = all(torch.equal(a, b) for a, b in zip(before, tensors(state).values(), strict=True))
    require(same, "extend changed the state that was passed in without donate=True")
    require(
        torch.equal(state.length, torch.full((B,), 5)), "state.length must count the tokens so far"
    )


def _unread(subject: Subject, mixer: Mixer) -> None:
    """Single tokens after a prompt, rows alike and ragged; no value may be read, so that a CUDA graph could hold the step."""
    x = subject.tokens(B, T)
    begins = 6 if subject.can.streaming == "exact" else T - 1
    left = torch.arange(T) >= torch.tensor([[0], [4]])
    for valid in (None, left) if subject.can.padding else (None,):
        expected = mixer(x, mask=Mask(causal=True, valid=valid))
        for donate in (False, True):
            with torch.set_grad_enabled(not donate):
                y, before, after = _without_values(partial(_steps, mixer, x, valid, begins, donate))
            what = f"no value read{', donated' if donate else ''}{', ragged' if valid is not None else ''}"
            require(before == after, f"{what}: a step changed shapes from {before} to {after}")
            if subject.can.streaming == "exact":
                require_close(y, expected, 1e-10, what)


def _steps(mixer: Mixer, x: Tensor, valid: Tensor | None, begins: int, donate: bool):
    """Outputs, and the shapes of the state after the prompt and after all steps. It begins with chunks."""
    own = None if valid is None else valid[:, :begins]
    state = mixer.initial_state(B, max_len=T)
    y, state = feed(mixer, x[:, :begins], state, (4, begins - 4), valid=own, donate=donate)
    before = _shapes(state)
    more, state = feed(mixer, x[:, begins:], state, (1,) * (T - begins), donate=donate)
    return torch.cat([y, more], dim=1), before, _shapes(state)


def _without_values(call: Callable[[], Any]) -> Any:
    """call(), inside torch.func, where no kernel reads the values of tensors."""
    found = []

    def once(z: Tensor) -> Tensor:
        found.append(call())
        return z

    torch.func.vmap(once)(torch.zeros(1))
    return found[0]


@torch.no_grad()
def _branches(subject: Subject, mixer: Mixer) -> None:
    """Two continuations of one state that was not donated stay apart when each gives its own storage away."""
    x, other = subject.tokens(B, T), subject.tokens(B, T).flip(1)
    for begin in (1, 5, 6):
        _, state = feed(
            mixer, x[:, :begin], mixer.initial_state(B, max_len=T), (begin,), donate=True
        )
        ends = [z[:, begin:] for z in (x, other)]
        states = [mixer.extend(end[:, :1], state)[1] for end in ends]
        outputs: list[list[Tensor]] = [[], []]
        for i in range(1, T - begin):
            for branch, end in enumerate(ends):
                y, states[branch] = mixer.extend(end[:, i : i + 1], states[branch], donate=True)
                outputs[branch].append(y)
        for end, found in zip(ends, outputs, strict=True):
            _, alone = feed(mixer, x[:, :begin], mixer.initial_state(B), (begin,))
            expected, _ = feed(mixer, end, alone, (1,) * end.shape[1])
            require_close(
                torch.cat(found, dim=1),
                expected[:, 1:],
                1e-10,
                f"two branches after {begin} tokens",
            )


def _reordered(subject: Subject, mixer: Mixer) -> None:
    """Beams: rows of a state may be picked, repeated and dropped."""
    x = subject.tokens(B, T)
    _, state = feed(mixer, x[:, :6], mixer.initial_state(B), (6,))
    pick = torch.tensor([1, 0, 1])
    picked = tree_map(lambda field: field[pick], state)
    y, _ = feed(mixer, x[pick, 6:], picked, (3, 4))
    require_close(y, mixer(x, mask=Mask(causal=True))[pick, 6:], 1e-10, "reordered rows")


def _rows_are_their_own(subject: Subject, mixer: Mixer) -> None:
    """Over several segments a row gets what it gets alone, also ragged, and after its state was picked."""
    x = subject.tokens(B, T)
    valid = torch.arange(T) >= torch.tensor([[0], [5]]) if subject.can.padding else None
    together, state = feed(mixer, x, mixer.initial_state(B), CHUNKS[2], valid=valid)
    more, _ = mixer.extend(x, state)
    for row in range(B):
        own = torch.ones(T, dtype=torch.bool) if valid is None else valid[row]
        sizes = [int(part.sum()) for part in own.split(CHUNKS[2]) if part.any()]
        alone, state_alone = feed(mixer, x[row, own][None], mixer.initial_state(1), sizes)
        require_close(together[row, own], alone[0], 1e-10, f"segments {CHUNKS[2]}: row {row} alone")
        more_alone, _ = mixer.extend(x[row][None], state_alone)
        require_close(more[row], more_alone[0], 1e-10, f"a segment more: row {row} alone")
    pick = torch.tensor([1, 0, 1])
    picked = tree_map(lambda field: field[pick], state)
    require_close(mixer.extend(x[pick], picked)[0], more[pick], 1e-10, "reordered rows")


def _state_size(subject: Subject, mixer: Mixer) -> None:
    declared = subject.can.state
    require(declared is not None, "streaming is declared and the state's size is not")
    assert declared is not None
    sizes = []
    for length in (1, 40):
        if length <= subject.longest:
            _, state = feed(mixer, subject.tokens(B, length), mixer.initial_state(B), (length,))
            sizes.append(sum(field.numel() for field in tensors(state).values()))
    if growth(declared, 4096, 65536) > 0:
        require(
            len(sizes) == 1 or sizes[0] < sizes[1],
            f"the state is declared to grow ({declared}) and has {sizes} numbers",
        )
        return
    require(
        len(set(sizes)) == 1,
        f"the state is declared constant ({declared}) and grows: {sizes} numbers",
    )


def _ragged(subject: Subject, mixer: Mixer, chunkings) -> None:
    generator = torch.Generator().manual_seed(4)
    for name, valid in {
        "left": torch.arange(T) >= torch.tensor([[0], [5]]),
        "interior": torch.rand(B, T, generator=generator) < 0.6,
    }.items():
        x = subject.tokens(B, T).masked_fill(~valid[..., None], float("nan"))
        expected = mixer(x, mask=Mask(causal=True, valid=valid))
        for chunks in chunkings:
            y, state = feed(mixer, x, mixer.initial_state(B), chunks, valid=valid)
            require_close(y, expected, 1e-10, f"{name} padding, chunks {chunks}")
            require(
                torch.equal(state.length, valid.sum(1)),
                f"{name} padding: state.length must count valid tokens",
            )
        if name == "left" and subject.can.streaming == "exact":
            _after_ragged(mixer, x, valid, expected)


def _after_ragged(mixer: Mixer, x: Tensor, valid: Tensor, expected: Tensor) -> None:
    """Rows of different lengths go on with one token each, none of which is said to be absent."""
    for donate in (False, True):
        with torch.set_grad_enabled(not donate):
            y, state = feed(mixer, x[:, :6], mixer.initial_state(B), (6,), valid=valid[:, :6])
            more, _ = feed(mixer, x[:, 6:], state, (1,) * (T - 6), donate=donate)
        y = torch.cat([y, more], dim=1)
        require_close(y, expected, 1e-10, "one token at a time after rows of different lengths")


def _cross(subject: Subject, mixer: Mixer) -> None:
    if not subject.can.bidirectional:
        return
    x, context = subject.tokens(B, T), subject.tokens(B, S, seed=7)
    for valid in (
        None,
        torch.arange(S) < torch.tensor([[4], [S]]),
        torch.arange(S) >= torch.tensor([[S], [2]]),
    ):
        if valid is not None and not subject.can.padding:
            continue
        expected = mixer(x, context=context, mask=Mask(valid=valid))
        y, _ = feed(mixer, x, mixer.initial_state(B, context=context, valid=valid), CHUNKS[2])
        require_close(y, expected, 1e-10, "cross: extend with a context in the state")


def _shapes(state: Any) -> list[tuple[int, ...]]:
    return [tuple(field.shape) for field in tensors(state).values()]
