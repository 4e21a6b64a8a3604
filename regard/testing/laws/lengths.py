"""Every length works: one, primes, shorter than a window, no multiple of a block; beyond `max_len` is refused."""

import torch

from regard.core import Mask, ShapeError
from regard.testing.subject import B, Subject, require, require_close

LENGTHS = (1, 2, 3, 5, 7, 8, 11, 16, 17, 31, 64)


def law(subject: Subject) -> None:
    mixer = subject.make()
    longest = min(subject.longest, LENGTHS[-1])
    for causal in subject.causalities():
        full = mixer(subject.tokens(B, longest), mask=Mask(causal=causal))
        for length in LENGTHS:
            if length > longest:
                continue
            y = mixer(subject.tokens(B, longest)[:, :length], mask=Mask(causal=causal))
            fine = y.shape == (B, length, subject.dim) and bool(torch.isfinite(y).all())
            require(fine, f"length {length}: shape {list(y.shape)}, or not finite")
            if causal:
                require_close(
                    y,
                    full[:, :length],
                    1e-9,
                    f"length {length}: not the prefix of length {longest}",
                )
    if subject.longest < 10**9:
        _refuses(subject, mixer)
    else:
        too_long = 2 * (mixer.max_len or LENGTHS[-1]) + 1
        y = mixer(subject.tokens(1, too_long), mask=Mask(causal=not subject.can.bidirectional))
        require(
            torch.isfinite(y).all(),
            f"any length is declared, and {too_long} gives values that are not finite",
        )


def _refuses(subject: Subject, mixer) -> None:
    too_long = subject.tokens(1, subject.longest + 1)
    calls = {"forward": lambda: mixer(too_long, mask=Mask(causal=not subject.can.bidirectional))}
    if subject.can.streaming == "exact":
        calls["extend"] = lambda: mixer.extend(too_long, mixer.initial_state(1))
    for name, call in calls.items():
        try:
            call()
        except ShapeError as error:
            require(
                "max_len" in str(error),
                f"{name} beyond max_len: the error does not name max_len: {error}",
            )
        else:
            require(
                False, f"{name} accepts {subject.longest + 1} tokens, max_len is {subject.longest}"
            )
