"""Cutting a byte stream into windows of equal length, so that every byte is predicted once."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.core import OptionError
from regard.lab.data.records import IGNORED, Integers

PAD = 0
START = 257
BYTE_VOCABULARY = 258  # padding, 256 bytes as byte + 1, the start of a text
MASK = 258
MASKED_VOCABULARY = 259  # and a token in the place of what is hidden


class Windows(NamedTuple):
    """Windows of a stream, and what they have in common with each other."""

    tokens: Integers  # [n T]
    labels: Integers  # [n T], the tokens that follow, or IGNORED
    again: NDArray[np.bool_]  # [n T], tokens that stand in the window before too


def cut(who: str, texts: Iterable[bytes], length: int) -> Windows:
    """All texts end to end, each behind a START token, in windows of `length` tokens.

    Every byte is the label of exactly one token; START is never a label. The first token of a window is the
    last label of the one before it, so that its first byte is predicted from one byte of context. The last
    window reaches back to be full, and has no labels where it overlaps the one before it.
    """
    tokens = (np.frombuffer(text, dtype=np.uint8).astype(np.int32) + 1 for text in texts)
    begun = [np.append(np.int32(START), one) for one in tokens]
    stream = np.concatenate(begun or [np.empty(0, np.int32)])
    asked = len(stream) - 1
    if asked < length:
        raise OptionError(
            f"{who}: length ({length}) is more than the {max(asked, 0)} bytes of the smallest split. Ask for less."
        )
    labels = np.where(stream == START, np.int32(IGNORED), stream)
    starts = np.arange(0, asked, length)
    starts[-1] = asked - length
    rows = starts[:, None] + np.arange(length)
    again = np.zeros(rows.shape, bool)
    again[-1, : -asked % length] = True
    return Windows(stream[rows], np.where(again, IGNORED, labels[rows + 1]), again)
