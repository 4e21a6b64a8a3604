"""Oracle of `strided` (arXiv 1904.10509): the sets A1 and A2, together or head by head, and the dilated window."""

from math import isqrt

from regard.reference._patterned import attend_over
from regard.reference._rows import oracle


@oracle
def strided(params, options, row):
    """-> (y [B T D], weights [B H T T])"""
    kind, stride = options["kind"], options["stride"]
    if stride is None:
        stride = 128 if options["max_len"] is None else max(1, isqrt(options["max_len"] // 2))
    w = options["window_size"] or stride
    c = options["summary_width"] or max(1, stride // 8)

    def first(i, j):
        return abs(i - j) <= w if kind == "strided" else i // stride == j // stride

    def second(i, j):
        return (i - j) % stride == 0 if kind == "strided" else j % stride >= stride - c

    def pairs(h, i, j):
        if kind == "dilated":
            return any(j == i + stride * step for step in range(-w, w + 1))
        if options["merged"]:
            return first(i, j) or second(i, j)
        return first(i, j) if h % 2 == 0 else second(i, j)

    return attend_over(pairs, params, options, row)
