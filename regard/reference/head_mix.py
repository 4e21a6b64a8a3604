"""Oracle of `head_mix` (arXiv 2004.05150): each head's pattern, read from its fields and joined pair by pair."""

from collections.abc import Sequence

from regard.reference._patterned import attend_over
from regard.reference._rows import oracle


@oracle
def head_mix(params, options, row):
    """-> (y [B T D], weights [B H T T])"""
    patterns = options["patterns"]
    found = getattr(patterns, "heads", patterns)  # of a PerHead
    of_heads = found if isinstance(found, Sequence) else [found]

    def pairs(h, i, j):
        if patterns is not None:
            return joins(of_heads[h % len(of_heads)], i, j)
        step = 8 if h % 3 == 1 else 1
        near = abs(i - j) <= 64 * step and (i - j) % step == 0
        return near or (h % 3 == 2 and (i == 0 or j == 0))

    return attend_over(pairs, params, options, row)


def joins(pattern, i: int, j: int) -> bool:
    match type(pattern).__name__:
        case "Union":
            return any(joins(part, i, j) for part in pattern.parts)
        case "Window":
            steps, rest = divmod(j - i, pattern.dilation)
            return rest == 0 and -pattern.before <= steps <= pattern.after
        case "Block":
            blocks = j // pattern.size - i // pattern.size
            return -pattern.before <= blocks <= pattern.after
        case "Strided":
            return (i - j) % pattern.stride == 0
        case "Summary":
            last = pattern.block - pattern.group * pattern.width
            return last - pattern.width <= j % pattern.block < last
        case "First" | "Span":
            return any(pattern.start <= one < pattern.stop for one in (i, j))
        case "All":
            return True
    raise TypeError(f"no oracle for the pattern {pattern!r}")
