"""A row alone gives what it gives in a batch of 2, 7 or 64."""

from regard.core import Mask
from regard.testing.subject import Subject, T, require_close


def law(subject: Subject) -> None:
    mixer = subject.make()
    x = subject.tokens(64, T)
    for causal in subject.causalities():
        mask = Mask(causal=causal)
        alone = mixer(x[:1], mask=mask)
        for size in (2, 7, 64):
            rows = x[:size].roll(size // 2, 0)
            got = mixer(rows, mask=mask)[size // 2]
            require_close(
                got, alone[0], 1e-10, f"a row in a batch of {size}{', causal' if causal else ''}"
            )
