"""Counted operations and live bytes grow as declared, between 4,096 and 65,536 tokens.

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
from regard.core.counting import Counted, count
from regard.testing.subject import Subject, require

LOW, HIGH = 4096, 65536
MARGIN = 0.1  # of the log-log slope
EXACT = 0.02  # of the cost between, where a sum of terms is declared
PRESENT = 0.1  # the least share of the fastest term at the longest


def law(subject: Subject) -> None:
    cls = type(subject.factory())
    options = dict(subject.options)
    if not subject.can.any_length:
        options["max_len"] = HIGH
    with torch.device("meta"):
        mixer = cls(**options).eval()
    can = mixer.capabilities  # of this length: a cost may depend on max_len
    for causal in subject.causalities():
        label = ", causal" if causal else ""
        counted = lru_cache(partial(_counted, mixer, subject.dim, causal))
        _require(f"time{label}", can.time, lambda T: counted(T).flops)  # noqa: B023  called at once
        _require(f"memory{label}", can.memory, lambda T: counted(T).peak_bytes)  # noqa: B023


def _require(label: str, declared: str, cost: Callable[[int], int]) -> None:
    """The slope over the whole range, or over its upper half, where slower terms have faded; or a declared sum."""
    middle = round(math.sqrt(LOW * HIGH))
    expected = growth(declared, LOW, HIGH)
    near = (
        abs(math.log(cost(HIGH) / cost(low)) / math.log(HIGH / low) - expected) <= MARGIN
        for low in (LOW, middle)
    )
    grows = any(near) or _is_sum_of_terms(declared, cost, middle)
    slope = math.log(cost(HIGH) / cost(LOW)) / math.log(HIGH / LOW)
    require(grows, f"{label}: grows as T^{slope:.2f}, declared {declared} (T^{expected:.2f})")


def _is_sum_of_terms(declared: str, cost: Callable[[int], int], middle: int) -> bool:
    """Whether a T^p + b T^q, p and q the slowest and the fastest term's, foretells the cost half way.

    Of a declared sum the fastest term need not rule yet; but it must be there.
    """
    slopes = [growth(term, LOW, HIGH) for term in declared.split("+")]
    slow, fast = min(slopes), max(slopes)
    if fast - slow < 2 * MARGIN:
        return False
    powers = torch.tensor([[T**slow, T**fast] for T in (LOW, HIGH)], dtype=torch.float64)
    costs = torch.tensor([cost(LOW), cost(HIGH)], dtype=torch.float64)
    a, b = torch.linalg.solve(powers, costs).tolist()
    foretold = a * middle**slow + b * middle**fast
    present = b * HIGH**fast >= PRESENT * cost(HIGH)
    return a >= 0 and present and abs(foretold / cost(middle) - 1) <= EXACT


def _counted(mixer: Mixer, dim: int, causal: bool, length: int) -> Counted:
    x = torch.empty(1, length, dim, device="meta")
    with torch.no_grad(), _projections(mixer) as spent:
        counted = count(lambda: mixer(x, mask=Mask(causal=causal)))
    mixing = counted.flops - sum(spent)
    return replace(counted, flops=mixing or counted.flops)


@contextmanager
def _projections(mixer: Mixer) -> Iterator[list[int]]:
    """Operations of linear layers that map each token by itself."""
    spent: list[int] = []

    def note(layer: nn.Linear, inputs, output) -> None:
        spent.append(2 * inputs[0].numel() * layer.out_features)

    hooks = [
        layer.register_forward_hook(note)
        for layer in mixer.modules()
        if isinstance(layer, nn.Linear) and max(layer.in_features, layer.out_features) < LOW
    ]
    try:
        yield spent
    finally:
        for hook in hooks:
            hook.remove()
