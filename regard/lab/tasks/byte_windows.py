"""Windows of whole texts that are held out: what language models of bytes learn from and are asked."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from regard.lab.data.stdlib import Split, split_of
from regard.lab.data.windows import Windows, cut, sample


class HeldOut(NamedTuple):
    train: Windows
    valid: Windows
    test: Windows


def held_out(
    who: str,
    texts: Mapping[str, bytes],
    length: int,
    *,
    valid_size: int,
    test_size: int,
    rng: np.random.Generator,
) -> HeldOut:
    """A hash of its name says whether a text trains. Texts, and samples of windows to evaluate, are drawn by `rng`."""

    def part(split: Split, size: int | None) -> Windows:
        names = [name for name in texts if split_of(name) == split]
        windows = cut(who, [texts[names[i]] for i in rng.permutation(len(names))], length)
        return sample(windows, size or len(windows.tokens), rng)

    return HeldOut(part("train", None), part("valid", valid_size), part("test", test_size))
