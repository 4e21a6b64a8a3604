"""At a length that crosses the borders of the blocks that users get, the mixer is what its plain form is.

Outputs and gradients equal those of the plain form in other blocks; the gradient is the derivative; `extend` in odd chunks, with absent tokens
between others, equals `forward`; a padded row equals the row alone; every stretch of tokens has outputs and is felt; float32 stays near
float64. The laws at 13 tokens tie tiny blocks to the oracle. A class without the option `impl` is compared with its oracle, at fewer tokens.
"""

import torch
from torch import Tensor

from regard import Form
from regard.core import Mask, Mixer
from regard.testing.subject import (
    Request,
    Subject,
    gradients,
    projected,
    require,
    require_close,
)

LENGTH = 1103  # a prime
OTHER = Form("plain", tile=389, chunk=211)
CHUNKS = (389, 1, 211, 1, 1, 500)  # of `extend`; together LENGTH
WITH_ORACLE = 67  # tokens: an oracle takes seconds, and T^2 more
STRETCH = 64
STEP = 1e-6  # of a finite difference
BOUND = 1e-9  # float64, relative
BOUND_FLOAT32 = 2e-3
BOUND_DERIVATIVE = 1e-2  # of the norm; a step may cross the kinks of some units


def law(subject: Subject) -> None:
    mixer = subject.make(blocks="own", max_len=LENGTH)
    other = subject.make(blocks=OTHER, max_len=LENGTH) if subject.takes_blocks else None
    if other is None and subject.oracle is None:
        subject.cannot_judge(
            "other blocks: the class cuts no work by `impl`, and no oracle is given; if it cuts the sequence itself, give it a variant with "
            'small chunks: variants = {"small_chunks": {"chunk_size": 4}}'
        )
    for causal in subject.causalities():
        label = "causal" if causal else "plain"
        x = subject.tokens(1, LENGTH).requires_grad_()
        y, found = _outputs_and_gradients(mixer, x, Mask(causal=causal))
        _gradient_is_the_derivative(mixer, x.detach(), found[0], causal)
        _every_stretch(subject, mixer, x, (y, found[0]), label)
        if other is not None:
            expected = _outputs_and_gradients(other, x, Mask(causal=causal))
            _equal(mixer, (y, found), expected, label)
        elif subject.oracle is not None:
            _equals_oracle(subject, causal)
        if subject.can.padding:
            _padded_row_is_the_row_alone(subject, mixer, causal)
        _float32(subject, x.detach(), y, causal)
    if subject.can.streaming == "exact":
        _extend(subject, mixer)


def _outputs_and_gradients(mixer: Mixer, x: Tensor, mask: Mask) -> tuple[Tensor, list[Tensor]]:
    y = mixer(x, mask=mask)
    return y.detach(), gradients(y, [x, *mixer.parameters()])


def _equal(mixer: Mixer, ours, theirs, label: str) -> None:
    require_close(ours[0], theirs[0], BOUND, f"{label}: output, in other blocks")
    names = ["x", *(name for name, _ in mixer.named_parameters())]
    for name, own, other in zip(names, ours[1], theirs[1], strict=True):
        require_close(own, other, BOUND, f"{label}: gradient of {name}, in other blocks")


@torch.no_grad()
def _gradient_is_the_derivative(mixer: Mixer, x: Tensor, found: Tensor, causal: bool) -> None:
    """Along one random direction; where structure is chosen from x, a step across a choice has no derivative."""
    mask = Mask(causal=causal)
    if mixer.plan(x[:, :2], mask=mask) is not None:
        return
    step = STEP * torch.randn(x.shape, generator=torch.Generator().manual_seed(3), dtype=x.dtype)
    ahead, behind = (projected(mixer(x + sign * step, mask=mask)) for sign in (1, -1))
    expected, actual = (ahead - behind) / (2 * STEP), (found * step).sum() / STEP
    error = ((actual - expected).abs() / found.norm().clamp_min(1e-12)).item()
    what = f"{'causal' if causal else 'plain'}: gradient of x along a direction"
    require(error <= BOUND_DERIVATIVE, f"{what}: relative error {error:.1e}")


def _every_stretch(subject: Subject, mixer: Mixer, x: Tensor, found, label: str) -> None:
    """No stretch of tokens has outputs of zero alone, or is felt by no output, unless the map says so."""
    y, felt = ((z[0] != 0).any(-1) for z in found)
    stretches = [slice(start, start + STRETCH) for start in range(0, LENGTH - STRETCH, STRETCH)]
    if all(y[part].any() and felt[part].any() for part in stretches):
        return
    used = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    if subject.can.attention_map:
        weights = mixer.attention_map(x.detach(), mask=Mask(causal=label == "causal"))
        used = (weights[0, :, :, -LENGTH:] != 0).any(0)
    for part in stretches:
        where = f"tokens {part.start} to {part.stop - 1}"
        require(y[part].any() or not used[part].any(), f"{label}: outputs of {where} are zero")
        require(felt[part].any() or not used[:, part].any(), f"{label}: no output feels {where}")


@torch.no_grad()
def _equals_oracle(subject: Subject, causal: bool) -> None:
    mixer = subject.make(blocks="own")
    length = min(WITH_ORACLE, subject.longest)
    x = subject.tokens(1, length)
    request = Request("causal" if causal else "plain", Mask(causal=causal))
    expected, _ = subject.consult(mixer, request, x)
    require_close(request(mixer, x), expected, BOUND, f"{request.label}: output, {length} tokens")


def _two_of_three() -> Tensor:
    """`valid` [2 T]: in the second row two of three tokens, so that no border stays in place."""
    valid = torch.ones(2, LENGTH, dtype=torch.bool)
    valid[1] = torch.arange(LENGTH) % 3 != 1
    return valid


@torch.no_grad()
def _padded_row_is_the_row_alone(subject: Subject, mixer: Mixer, causal: bool) -> None:
    valid, x = _two_of_three(), subject.tokens(2, LENGTH, seed=1)
    y = mixer(x, mask=Mask(causal=causal, valid=valid))
    alone = mixer(x[1, valid[1]][None], mask=Mask(causal=causal))
    what = f"a padded row{', causal' if causal else ''}"
    require_close(y[1, valid[1]], alone[0], BOUND, what)
    require((y[~valid] == 0).all(), f"{what}: an output at an invalid position is not zero")


@torch.no_grad()
def _float32(subject: Subject, x: Tensor, expected: Tensor, causal: bool) -> None:
    mixer = subject.make(torch.float32, blocks="own", max_len=LENGTH)
    if mixer.plan(x[:1, :2].float(), mask=Mask(causal=causal)) is not None:
        return  # rounding chooses other structure
    y = mixer(x.float(), mask=Mask(causal=causal))
    error = ((y.double() - expected).norm() / expected.norm()).item()
    require(error <= BOUND_FLOAT32, f"float32: relative error {error:.1e}, {BOUND_FLOAT32} allowed")


@torch.no_grad()
def _extend(subject: Subject, mixer: Mixer) -> None:
    valid = _two_of_three() if subject.can.padding else None
    x = subject.tokens(2, LENGTH, seed=2)
    expected = mixer(x, mask=Mask(causal=True, valid=valid))
    for donate in (False, True):
        state = mixer.initial_state(2, max_len=LENGTH if donate else None)
        start = 0
        for size in CHUNKS:
            part = slice(start, start + size)
            here = None if valid is None else valid[:, part]
            y, state = mixer.extend(x[:, part], state, valid=here, donate=donate)
            what = f"extend: tokens {start} to {start + size - 1}{', donated' if donate else ''}"
            require_close(y, expected[:, part], BOUND, what)
            start += size
