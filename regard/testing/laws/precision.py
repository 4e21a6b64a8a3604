"""Rounding: in lower precision, and under autocast, results are finite, of the input's type and near those of float64."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cache, lru_cache, partial
from itertools import islice
from statistics import median

import torch
from torch import Tensor

from regard.core import CAUSAL, Mixer, TensorMap, sum_names, tensors
from regard.functional.rows import recorded, wide_type
from regard.mixers.softmax import Softmax
from regard.testing.laws.long import LENGTH
from regard.testing.subject import (
    B,
    LawError,
    Request,
    Subject,
    T,
    Tensors,
    require,
    results,
    seeded,
)

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
LABELS = ("plain", "causal", "cross", "interior padding", "causal interior padding")
MASKED = ("pairwise", "global", "causal pairwise", "causal global")  # in float32
DRAWS = 3  # of parameters and inputs
MOST_DRAWS = 12  # where rounding chooses other structure (hashes, clusters) than float64 does
AMPLIFIED = 8  # what rounding within may do, in units of a perturbation of inputs and parameters
ULPS = 8
MANY = 400  # tokens of a stream: a sum in bfloat16 stops growing after 256
DRIFT = 4  # what a stream may err, in units of what a whole pass does
SCALES = (1e-6, 1e-3, 1.0, 10.0, 100.0, 1e4)
LARGE = (1e7, 1e10)  # float32 alone
SLACK = 16  # what is computed on the way may be larger than every result
AUTOCAST_BOUNDS = {
    "output": 0.05,  # of the norm
    "gradient of x": 0.2,  # rounding switches units of relu on and off
}


def low_precision(subject: Subject) -> None:
    """Outputs and gradients in float32 and bfloat16 are near our own float64 form, which `reference` proves.

    Allowed is AMPLIFIED times what a relative perturbation of eps of inputs and parameters does to the float64 form, plus a
    few ulp of the largest output, or of the largest of all gradients: what vanishes does so in sums.

    Worst over several draws on both sides, since one draw of a rounding error says little; of our gradients the median,
    since a unit that rounding brings to the other side of zero has another gradient.

    The last tokens of a stream of MANY, one by one in bfloat16, err at most DRIFT times as much as those of a whole pass.
    """
    if subject.can.streaming == "exact":
        _require_no_drift(subject)
    for dtype in (torch.float32, torch.bfloat16):
        drawn = lru_cache(partial(_Drawn, subject, dtype))
        for request in subject.requests(dtype=dtype):
            if request.label in LABELS + MASKED * (dtype == torch.float32):
                _is_near(subject, request, dtype, drawn)


@torch.no_grad()
def _require_no_drift(subject: Subject) -> None:
    mixer = subject.make(torch.bfloat16, blocks="own", max_len=MANY).eval()
    x = subject.tokens(1, MANY, dtype=torch.bfloat16)
    exact = deepcopy(mixer).double()(x.double(), mask=CAUSAL)
    state, parts = mixer.initial_state(1), []
    for token in x.split(1, 1):
        y, state = mixer.extend(token, state, donate=True)
        parts.append(y)
    whole = mixer(x, mask=CAUSAL)
    passed, streamed = ((y - exact)[:, -100:].norm() for y in (whole, torch.cat(parts, 1)))
    said = f"a stream of {MANY} tokens in bfloat16 errs by {streamed:.3g}, a whole pass by {passed:.3g}"
    require(streamed <= DRIFT * passed, said)


class _Drawn:
    """A mixer of one type and its tokens, its float64 form, and a perturbation of that."""

    def __init__(self, subject: Subject, dtype: torch.dtype, seed: int):
        self.x = subject.tokens(B, T, seed=seed, dtype=dtype)
        self.mixer = subject.make(dtype, seed)
        self.exact = deepcopy(self.mixer).double()
        self.eps = torch.finfo(dtype).eps
        self.generator = seeded(0)
        self.near = deepcopy(self.exact)
        with torch.no_grad():
            for parameter in self.near.parameters():
                parameter.copy_(self.moved(parameter))

    def moved(self, z: Tensor) -> Tensor:
        """z in float64, each number larger or smaller by eps of itself."""
        sign = torch.randint(0, 2, z.shape, generator=self.generator) * 2 - 1
        return z.detach().double() * (1 + self.eps * sign)


def _is_near(
    subject: Subject, request: Request, dtype: torch.dtype, drawn: Callable[[int], _Drawn]
) -> None:
    errors = (_errors(drawn(seed), request, dtype) for seed in range(MOST_DRAWS))
    draws = list(islice(filter(None, errors), DRAWS))
    if not draws:
        subject.cannot_judge(f"{request.label} in {dtype}: rounding chooses other structure")
        return
    by_name = {name: list(zip(*(draw[name] for draw in draws), strict=True)) for name in draws[0]}
    steepest = max(max(size) for name, (*_, size) in by_name.items() if name != "output")
    for name, (ours, moved, size) in by_name.items():
        is_output = name == "output"
        error = max(ours) if is_output or torch.inf in ours else median(ours)
        largest = max(size) if is_output else steepest
        allowed = AMPLIFIED * max(moved) + ULPS * torch.finfo(dtype).eps * largest
        if not error <= allowed < torch.inf:
            said = f"{request.label} in {dtype}: {name}"
            raise LawError(f"{said}: error {error:.2e}, allowed {allowed:.2e}")


def _errors(
    drawn: _Drawn, request: Request, dtype: torch.dtype
) -> dict[str, tuple[float, float, float]] | None:
    """Our error, the change under perturbation, and the largest true value, of the output and of every gradient.

    None where the structure in this type is not that of float64.
    """

    def computed(mixer: Mixer, form: TensorMap) -> Tensors | None:
        """Output and gradients in this form; None where they were computed with another structure than the first."""
        x = form(drawn.x)
        context = request.context
        context = None if context is None else form(context).detach().requires_grad_()
        asked = replace(request, context=context)
        plan = asked(mixer.plan, x) or {}
        structures.append({k: z for k, z in plan.items() if not z.is_floating_point()})
        same = all(torch.equal(z, structures[0][k]) for k, z in structures[-1].items())
        return asked.results(mixer, x, like=dtype) if same else None

    structures = list[Tensors]()
    truth = computed(drawn.exact, Tensor.double)
    ours = computed(drawn.mixer, lambda z: z)
    moved = computed(drawn.near, drawn.moved) if ours else None
    if ours is None or truth is None or moved is None:
        return None
    return {
        name: (_largest(ours[name].double() - true), _largest(moved[name] - true), _largest(true))
        for name, true in truth.items()
    }


def _largest(z: Tensor) -> float:
    """The largest magnitude, as a float; infinite where there is a NaN, 0 for an empty tensor."""
    return z.abs().nan_to_num(torch.inf, posinf=torch.inf).max().item() if z.numel() else 0.0


def types(subject: Subject) -> None:
    """Everything made in float16, bfloat16 and float32 is finite and of the input's type: outputs, gradients, maps, states.

    Tokens that are zero, as absent ones are, have neighbours that are not: what divides by a norm divides by zero there.
    """
    for dtype in DTYPES:
        mixer = subject.make(dtype, blocks="own")
        x = subject.tokens(B, T, dtype=dtype)
        x[0, ::3] = 0
        for request in subject.requests(dtype=dtype):
            _require_types(request.results(mixer, x), dtype, request.label)
            with torch.no_grad():
                seen = request(mixer.observe, x)
            _require_types(seen._asdict(), dtype, f"{request.label}: observe")
        if subject.can.streaming:
            _require_streamed(mixer, x)
    # Where sums are long, and work is cut as users' is.
    mixer = subject.make(torch.float16, blocks="own", max_len=LENGTH)
    valid = (torch.arange(LENGTH) % 5 != 1)[None] if subject.can.padding else None
    for order in subject.orders():
        found = order.but(f"{LENGTH} tokens", valid=valid)
        x = subject.tokens(1, LENGTH, dtype=torch.float16)
        _require_types(found.results(mixer, x), torch.float16, found.label)


@recorded(plain_instead=True)
def finite(subject: Subject) -> None:
    """Where output and gradients of softmax are finite, so are these, for inputs of scale 1e-6 to 1e4, in float32 to 1e10.

    Beyond float16's declared `finite_to`, and in other types, they need not be where values in float64, or the squares of what heads give, which
    norms need, leave the type's range, but for SLACK.
    Of plain forms: the gradients of torch's fused softmax are infinite from scores of about 1e8 on, whatever the type.
    """
    heads = subject.num_heads if subject.dim % subject.num_heads == 0 else 1
    for dtype in DTYPES:
        ours = subject.make(dtype)
        for scale in SCALES + LARGE * (dtype == torch.float32):
            if not _softmax_is_finite(subject.dim, heads, dtype, scale):
                continue
            x = (subject.x * scale).to(dtype)
            promised = dtype == torch.float16 and scale <= subject.can.finite_to
            for request in subject.samples():
                beyond = _beyond(request.results(ours, x))
                if beyond and (promised or not _leaves_range(request, ours, x)):
                    said = f"{request.label} in {dtype} at scale {scale:g}: {beyond}"
                    raise LawError(f"{said} is not finite, and softmax's is")


@cache
def _softmax_is_finite(dim: int, num_heads: int, dtype: torch.dtype, scale: float) -> bool:
    softmax = Subject(lambda: Softmax(dim, num_heads=num_heads))
    mixer = softmax.make(dtype)
    x = (softmax.x * scale).to(dtype)
    return not any(_beyond(order.results(mixer, x)) for order in softmax.orders())


def _leaves_range(request: Request, mixer: Mixer, x: Tensor) -> bool:
    exact = deepcopy(mixer).double()
    found = _beyond(request.results(exact, x.double()), torch.finfo(x.dtype).max / SLACK)
    heads = exact.observe(x.double(), mask=request.mask, weights=False).heads
    most = torch.finfo(torch.float32).max
    return bool(found) or (heads is not None and _largest(heads.square()) > most)


def _beyond(found: Tensors, largest: float = float("inf")) -> str:
    """The first result that holds such numbers, or none; empty where none does."""
    return next((name for name, z in found.items() if not _largest(z) < largest), "")


@torch.no_grad()
def _require_streamed(mixer: Mixer, x: Tensor) -> None:
    state = mixer.initial_state(B)
    for chunk in x.split((5, 1, T - 6), 1):
        y, state = mixer.extend(chunk, state)
        _require_types({"output": y}, x.dtype, "extend")
        for name, value in tensors(state).items():
            if value.is_floating_point():
                wide = wide_type(x) if name in sum_names(state) else x.dtype
                _require_types({name: value}, wide, "extend")


def _require_types(found: Mapping[str, Tensor | None], dtype: torch.dtype, label: str) -> None:
    for name, value in found.items():
        if value is not None:
            what = f"{label}: {name}"
            require(value.dtype == dtype, f"{what} is {value.dtype}, the input {dtype}")
            require(value.isfinite().all(), f"{what} is not finite in {dtype}")


def autocast(subject: Subject) -> None:
    """A float32 module's forward under autocast to bfloat16 or float16, and the backward after it, stay finite, and equal it to bfloat16's precision."""
    mixer = subject.make(torch.float32, blocks="own")
    for order in subject.orders():
        x = subject.tokens(B, T, dtype=torch.float32).requires_grad_()
        expected = order.results(mixer, x)
        for dtype in (torch.bfloat16, torch.float16):
            with torch.autocast("cpu", dtype=dtype):
                y = order(mixer, x)
            found = results(mixer, y, x=x, context=order.context)  # outside, where training has it
            for name, value in found.items():
                require(value.isfinite().all(), f"autocast: {name} is not finite in {dtype}")
            for name, bound in AUTOCAST_BOUNDS.items():
                error = (found[name].float() - expected[name]).norm()
                error = error / expected[name].norm().clamp_min(1e-12)
                require(
                    error < bound,
                    f"autocast: {name}: relative error {error:.3f} in {dtype}, allowed {bound}",
                )
