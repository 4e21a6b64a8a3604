"""The copying problem (Hochreiter & Schmidhuber 1997; Arjovsky et al. 2015, arXiv 1511.06464): repeat what stood long ago.

    w1 w2 ... wn   - - - ... -   : w1 w2 ... wn        n symbols, `gap` blanks, a sign, and the symbols once more

Symbols are drawn evenly. The label of the sign is w1, that of each repeated symbol the next; all others ask nothing.
Every answer stands n + gap tokens back: without a way to reach so far, nothing is better than chance.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.lab.data.checks import check_seed, check_sizes

BLANK, SIGN, FIRST_SYMBOL = 1, 2, 3
IGNORED = -100


class Copies(NamedTuple):
    tokens: NDArray[np.integer]  # [n length]
    labels: NDArray[np.integer]  # [n length]


def generate_copies(count: int, *, copied: int, gap: int, symbols: int, seed: int) -> Copies:
    check_sizes("copy_across", count=count, copied=copied, gap=gap, symbols=symbols)
    check_seed("copy_across", seed)
    words = np.random.default_rng(seed).integers(
        FIRST_SYMBOL, FIRST_SYMBOL + symbols, (count, copied)
    )
    tokens = np.full((count, 2 * copied + gap), BLANK)
    tokens[:, :copied] = words
    tokens[:, copied + gap] = SIGN
    tokens[:, copied + gap + 1 :] = words[:, :-1]
    labels = np.full_like(tokens, IGNORED)
    labels[:, copied + gap :] = words
    return Copies(tokens, labels)
