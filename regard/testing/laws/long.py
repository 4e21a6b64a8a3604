"""At a length that crosses the borders of the blocks that users get, the mixer is what its plain form is."""

from functools import partial

import torch
from torch import Tensor

from regard import Form
from regard.core import Mixer
from regard.testing.laws.streaming import require_streamed
from regard.testing.subject import (
    Request,
    Subject,
    normal,
    projected,
    require,
    require_close,
    require_same,
)

LENGTH = 1103  # a prime
OTHER = Form("plain", tile=389, chunk=211)
CHUNKS = (389, 1, 211, 1, 1, 500)  # of `extend`; together LENGTH
WHOLE = (LENGTH - 2, 1, 1)
WITH_ORACLE = 67  # tokens: an oracle takes seconds, and T^2 more
STRETCH = 64
LOUD = 30
STEP = 1e-6  # of a finite difference
BOUND = 1e-9  # float64, relative
BOUND_FLOAT32 = 2e-3
BOUND_DERIVATIVE = 1e-2  # of the norm; a step may cross the kinks of some units


def long(subject: Subject) -> None:
    """At a length that crosses the borders of the blocks that users get, the mixer is what its plain form is.

    Outputs and gradients equal those of the plain form in other blocks; the gradient is the derivative; `extend` in odd chunks, with absent tokens
    between others, equals `forward`; a padded row equals the row alone; every stretch of tokens has outputs and is felt; float32 stays near
    float64. The laws at 13 tokens tie tiny blocks to the oracle. A class without the option `impl` is compared with its oracle, at fewer tokens.
    """
    mixer = subject.make(blocks="own", max_len=LENGTH)
    other = subject.make(blocks=OTHER, max_len=LENGTH) if subject.takes_blocks else None
    if not (other or subject.oracle):
        subject.cannot_judge(
            "other blocks: the class cuts no work by `impl`, and no oracle is given; if it cuts the sequence itself, give it a variant with "
            'small chunks: variants = {"small_chunks": {"chunk_size": 4}}'
        )
    x = subject.tokens(1, LENGTH)
    for order in subject.orders():
        found = order.results(mixer, x)
        y = found["output"].detach()
        dx = found["gradient of x"]
        _gradient_is_the_derivative(mixer, x, dx, order)
        _every_stretch(subject, mixer, x, (y, dx), order)
        if other:
            require_same(found, order.results(other, x), BOUND, f"{order.label}, in other blocks")
        elif subject.oracle:
            few = subject.tokens(1, min(WITH_ORACLE, subject.longest))
            own = subject.make(blocks="own")
            what = f"{order.label}: output, {few.shape[1]} tokens"
            with torch.no_grad():
                expected, _ = subject.consult(own, order, few)
                require_close(order(own, few), expected, BOUND, what)
        if subject.can.padding:
            _padded_row_is_the_row_alone(subject, mixer, order)
        _float32(subject, x, y, order)
    if subject.streams:
        valid = _two_of_three() if subject.can.padding else None
        x = subject.tokens(2, LENGTH, seed=2)
        extended = partial(require_streamed, mixer, x, what="extend", bound=BOUND, valid=valid)
        with torch.no_grad():
            extended(CHUNKS)
            extended(WHOLE, max_len=LENGTH, donate=True)


@torch.no_grad()
def _gradient_is_the_derivative(mixer: Mixer, x: Tensor, found: Tensor, order: Request) -> None:
    """Along one random direction; where structure is chosen from x, a step across a choice has no derivative."""
    if mixer.plan(x[:, :2], mask=order.mask) is not None:
        return
    step = STEP * normal(*x.shape, seed=3)
    ahead, behind = (projected(order(mixer, x + sign * step)) for sign in (1, -1))
    expected = (ahead - behind) / (2 * STEP)
    actual = (found * step).sum() / STEP
    error = ((actual - expected).abs() / found.norm().clamp_min(1e-12)).item()
    what = f"{order.label}: gradient of x along a direction"
    require(error <= BOUND_DERIVATIVE, f"{what}: relative error {error:.1e}")


def _every_stretch(
    subject: Subject, mixer: Mixer, x: Tensor, found: tuple[Tensor, Tensor], order: Request
) -> None:
    """No stretch of tokens has outputs of zero alone, or is felt by no output, unless the map says so."""
    y, felt = ((z[0] != 0).any(-1) for z in found)
    stretches = [slice(start, start + STRETCH) for start in range(0, LENGTH - STRETCH, STRETCH)]
    if all(y[part].any() and felt[part].any() for part in stretches):
        return
    used = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    if subject.can.attention_map:
        used = (mixer.attention_map(x, mask=order.mask)[0, :, :, -LENGTH:] != 0).any(0)
    for part in stretches:
        where = f"tokens {part.start} to {part.stop - 1}"
        require(
            y[part].any() or not used[part].any(), f"{order.label}: outputs of {where} are zero"
        )
        heard = felt[part].any() or not used[:, part].any()
        if not heard:  # a maximum may feel the largest tokens alone
            louder = x.clone()
            louder[:, part] *= LOUD
            heard = order.results(mixer, louder)["gradient of x"][0, part].any()
        require(heard, f"{order.label}: no output feels {where}")


def _two_of_three() -> Tensor:
    """`valid` [2 T]: in the second row two of three tokens, so that no border stays in place."""
    valid = torch.ones(2, LENGTH, dtype=torch.bool)
    valid[1] = torch.arange(LENGTH) % 3 != 1
    return valid


@torch.no_grad()
def _padded_row_is_the_row_alone(subject: Subject, mixer: Mixer, order: Request) -> None:
    valid = _two_of_three()
    x = subject.tokens(2, LENGTH, seed=1)
    padded = order.but("a padded row", valid=valid)
    y = padded(mixer, x)
    alone = order(mixer, x[1, valid[1]][None])
    what = padded.label
    require_close(y[1, valid[1]], alone[0], BOUND, what)
    require((y[~valid] == 0).all(), f"{what}: an output at an invalid position is not zero")


@torch.no_grad()
def _float32(subject: Subject, x: Tensor, expected: Tensor, order: Request) -> None:
    mixer = subject.make(torch.float32, blocks="own", max_len=LENGTH)
    if mixer.plan(x[:1, :2].float(), mask=order.mask) is not None:
        return  # rounding chooses other structure
    error = ((order(mixer, x.float()).double() - expected).norm() / expected.norm()).item()
    require(error <= BOUND_FLOAT32, f"float32: relative error {error:.1e}, {BOUND_FLOAT32} allowed")
