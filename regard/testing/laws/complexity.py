"""Counted operations and live bytes grow as declared, between 4,096 and 65,536 tokens."""

import torch

from regard.core import Mask, growth
from regard.core.counting import count
from regard.testing.subject import Subject, require

LOW, HIGH = 4096, 65536
MARGIN = 0.1


def law(subject: Subject) -> None:
    cls = type(subject.factory())
    options = dict(subject.options)
    if not subject.can.any_length:
        options["max_len"] = HIGH
    with torch.device("meta"):
        mixer = cls(**options).eval()
    for causal in subject.causalities():
        small, large = (_counted(mixer, subject.dim, length, causal) for length in (LOW, HIGH))
        for what, declared in (("time", subject.can.time), ("memory", subject.can.memory)):
            before, after = getattr(small, _FIELDS[what]), getattr(large, _FIELDS[what])
            slope = (
                torch.tensor(after / before).log2().item() / torch.tensor(HIGH / LOW).log2().item()
            )
            expected = growth(declared, LOW, HIGH)
            near = abs(slope - expected) <= MARGIN
            label = f"{what}{', causal' if causal else ''}"
            require(
                near, f"{label}: grows as T^{slope:.2f}, declared {declared} (T^{expected:.2f})"
            )


_FIELDS = {"time": "flops", "memory": "peak_bytes"}


def _counted(mixer, dim: int, length: int, causal: bool):
    x = torch.empty(1, length, dim, device="meta")
    with torch.no_grad():
        return count(lambda: mixer(x, mask=Mask(causal=causal)))
