"""In float16, bfloat16 and float32 everything made is finite and of the input's type: outputs, gradients, maps, states.

Tokens that are zero, as absent ones are, have neighbours that are not: what divides by a norm divides by zero there.
"""

import torch
from torch import Tensor

from regard.core import Mask, Mixer
from regard.core.states import tensors
from regard.testing.laws.long import LENGTH
from regard.testing.subject import B, Request, Subject, T, gradients, require

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def law(subject: Subject) -> None:
    for dtype in DTYPES:
        mixer = subject.make(dtype, blocks="own")
        for request in subject.requests(dtype=dtype):
            x = subject.tokens(B, T, dtype=dtype)
            x[0, ::3] = 0
            _outputs_and_gradients(mixer, request, x)
            _observed(mixer, request, x)
        if subject.can.streaming:
            _streamed(subject, mixer, dtype)
    _at_length(subject)


def _outputs_and_gradients(mixer: Mixer, request: Request, x: Tensor) -> None:
    x = x.detach().requires_grad_()
    y = request(mixer, x)
    found = gradients(y, [x, *mixer.parameters()])
    _require(y, x, f"{request.label}: output")
    names = ["x", *(name for name, _ in mixer.named_parameters())]
    for name, gradient in zip(names, found, strict=True):
        _require(gradient, x, f"{request.label}: gradient of {name}")


@torch.no_grad()
def _observed(mixer: Mixer, request: Request, x: Tensor) -> None:
    seen = mixer.observe(x, context=request.context, mask=request.mask)
    for name, value in seen._asdict().items():
        if value is not None:
            _require(value, x, f"{request.label}: observe: {name}")


@torch.no_grad()
def _streamed(subject: Subject, mixer: Mixer, dtype: torch.dtype) -> None:
    x = subject.tokens(B, T, dtype=dtype)
    x[0, ::3] = 0
    state = mixer.initial_state(B)
    for chunk in (x[:, :5], x[:, 5:6], x[:, 6:]):
        y, state = mixer.extend(chunk, state)
        _require(y, x, "extend: output")
        for name, value in tensors(state).items():
            if value.is_floating_point():
                _require(value, x, f"extend: state.{name}")


def _at_length(subject: Subject) -> None:
    """Where sums are long, and work is cut as users' is."""
    mixer = subject.make(torch.float16, blocks="own", max_len=LENGTH)
    x = subject.tokens(1, LENGTH, dtype=torch.float16)
    for causal in subject.causalities():
        valid = (torch.arange(LENGTH) % 5 != 1)[None] if subject.can.padding else None
        label = f"{'causal, ' if causal else ''}{LENGTH} tokens"
        _outputs_and_gradients(mixer, Request(label, Mask(causal=causal, valid=valid)), x)


def _require(value: Tensor, like: Tensor, what: str) -> None:
    require(value.dtype == like.dtype, f"{what} is {value.dtype}, the input {like.dtype}")
    require(bool(torch.isfinite(value).all()), f"{what} is not finite in {like.dtype}")
