"""Counted operations and live bytes grow as declared from 4,096 to 16,384 tokens, or else to 65,536.

Projections of single tokens grow as T everywhere; they are taken out, so that what is declared is not hidden by them.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial

import torch
from torch import nn

from regard.core import Mask, Mixer, growth
from regard.testing.counting import Counted, count
from regard.testing.subject import LawError, Subject, require

RANGES = (
    (4096, 16384),
    (4096, 65536),
)  # the second where a cost does not yet show its growth in the first
POSITIONS = 1024  # the fewest features of a layer that maps positions: it has max_len of them
DEAR = 1.6  # growth of time from which values are not computed; the meta device is slow at many small steps
MARGIN = 0.1  # of the log-log slope
EXACT = 0.02  # of the cost between, where a sum of terms is declared
PRESENT = 0.1  # the least share of the fastest term at the longest


def law(subject: Subject) -> None:
    for low, high in RANGES:
        try:
            return _grows_as_declared(subject, low, high)
        except LawError:
            if high == RANGES[-1][1]:
                raise


def _grows_as_declared(subject: Subject, low: int, high: int) -> None:
    options = dict(subject.options)
    if not subject.can.any_length:
        options["max_len"] = high
    if subject.takes_blocks:  # what is declared is the plain form's growth
        options["impl"] = "plain"
    device = "cpu" if growth(subject.can.time, low, high) < DEAR else "meta"
    with torch.device(device):
        mixer = subject.cls(**options).eval()
    can = mixer.capabilities  # of this length: a cost may depend on max_len
    for causal in subject.causalities():
        label = ", causal" if causal else ""
        counted = lru_cache(partial(_counted, mixer, device, subject.dim, causal))
        _require(f"time{label}", can.time, lambda T: counted(T).flops, low, high)  # noqa: B023  called at once
        _require(f"memory{label}", can.memory, lambda T: counted(T).peak_bytes, low, high)  # noqa: B023


def _require(label: str, declared: str, cost: Callable[[int], int], low: int, high: int) -> None:
    """The slope over the whole range, or over its upper half, where slower terms have faded; or a declared sum."""
    middle = round(math.sqrt(low * high))
    expected = growth(declared, low, high)
    near = (
        abs(math.log(cost(high) / cost(start)) / math.log(high / start) - expected) <= MARGIN
        for start in (low, middle)
    )
    grows = any(near) or _is_sum_of_terms(declared, cost, low, middle, high)
    slope = math.log(cost(high) / cost(low)) / math.log(high / low)
    require(grows, f"{label}: grows as T^{slope:.2f}, declared {declared} (T^{expected:.2f})")


def _is_sum_of_terms(
    declared: str, cost: Callable[[int], int], low: int, middle: int, high: int
) -> bool:
    """True if a T^p + b T^q, p and q the slowest and the fastest term's, foretells the cost half way.

    Of a declared sum the fastest term need not rule yet; but it must be there.
    """
    slopes = [growth(term, low, high) for term in declared.split("+")]
    slow, fast = min(slopes), max(slopes)
    if fast - slow < 2 * MARGIN:
        return False
    powers = torch.tensor([[T**slow, T**fast] for T in (low, high)], dtype=torch.float64)
    costs = torch.tensor([cost(low), cost(high)], dtype=torch.float64)
    a, b = torch.linalg.solve(powers, costs).tolist()
    foretold = a * middle**slow + b * middle**fast
    present = b * high**fast >= PRESENT * cost(high)
    return a >= 0 and present and abs(foretold / cost(middle) - 1) <= EXACT


def _counted(mixer: Mixer, device: str, dim: int, causal: bool, length: int) -> Counted:
    x = torch.randn(1, length, dim, generator=torch.Generator().manual_seed(0)).to(device)
    with torch.no_grad(), _one_thread(), _projections(mixer) as spent:
        counted = count(lambda: mixer(x, mask=Mask(causal=causal)))
    mixing = counted.flops - sum(spent)
    return replace(counted, flops=mixing or counted.flops)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Room for temporaries is held for each thread, and what is declared is not of the machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _projections(mixer: Mixer) -> Iterator[list[int]]:
    """Operations of linear layers that map each token by itself."""
    spent: list[int] = []

    def note(layer: nn.Linear, inputs, output) -> None:
        spent.append(2 * inputs[0].numel() * layer.out_features)

    hooks = [
        layer.register_forward_hook(note)
        for layer in mixer.modules()
        if isinstance(layer, nn.Linear) and max(layer.in_features, layer.out_features) < POSITIONS
    ]
    try:
        yield spent
    finally:
        for hook in hooks:
            hook.remove()
