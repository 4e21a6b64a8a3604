"""Which keys the terms of a pattern have, as ranges: what tiles and block masks are planned from."""

import math
from itertools import groupby

import torch
from jaxtyping import Int
from torch import Tensor

from regard.functional.patterns import Block, Pattern, Scattered, Strided, Summary, Window


def ranges(term: Pattern, rows: range, S: int) -> list[range]:
    """Ranges that together hold every key of these queries, whose distances are multiples of `term.lanes`; `scattered` keys aside."""
    match term:
        case Window(before, after, d):
            first, end = rows[0] - before * d, rows[-1] + after * d + 1
            return [range(first if first >= 0 else first % d, min(end, S), d)]
        case Block(size, before, after):
            first, end = rows[0] // size - before, rows[-1] // size + after + 1
            return [range(max(first, 0) * size, min(end * size, S))]
        case Strided(stride):
            return [range(rows[0] % stride, S, stride)]
        case Summary(block, width):
            return [range(term.first + c, S, block) for c in range(width)]
        case Scattered():
            return []
    if term.span is None or rows[0] in term.span or rows[-1] in term.span:
        return [range(S)]
    return [range(term.span.start, min(term.span.stop, S))]


def scattered(term: Scattered, rows: range, S: int) -> Int[Tensor, "h s"]:
    """Keys of these queries by head, each once; -1: none."""
    blocks = term.table[:, rows[0] // term.size : rows[-1] // term.size + 1].flatten(1)
    again = (blocks[:, :, None] == blocks[:, None]).tril(-1).any(-1)
    inside = torch.arange(term.size, device=blocks.device)
    cols = (blocks[:, :, None] * term.size + inside).masked_fill(
        (again | (blocks < 0))[..., None], -1
    )
    return cols.flatten(1).masked_fill(cols.flatten(1) >= S, -1)


def period(terms: tuple[Pattern, ...]) -> int | None:
    """Moving query and key together by multiples of this changes nothing; None: it does."""
    found = []
    for term in terms:
        match term:
            case Window() | Strided():
                found.append(1)
            case Block(size=size) | Summary(block=size):
                found.append(size)
            case _:
                return None
    return math.lcm(*found)


def disjoint(ranges: list[range]) -> list[range]:
    """The same numbers, each once: intervals joined, and combs cut where an interval covers them."""
    spans: list[range] = []
    for r in sorted((r for r in ranges if len(r) and r.step == 1), key=lambda r: r.start):
        if spans and r.start <= spans[-1].stop:
            spans[-1] = range(spans[-1].start, max(spans[-1].stop, r.stop))
        else:
            spans.append(r)
    combs = list(dict.fromkeys(r for r in ranges if len(r) and r.step > 1))
    if any(_overlap(a, b) for n, a in enumerate(combs) for b in combs[:n]):
        points = sorted({p for r in combs for p in r})
        runs = groupby(enumerate(points), key=lambda pair: pair[1] - pair[0])
        return disjoint(
            spans + [range(run[0][1], run[-1][1] + 1) for run in (list(g) for _, g in runs)]
        )
    for span in spans:
        combs = [piece for comb in combs for piece in _cut(comb, span)]
    return spans + combs


def _cut(comb: range, span: range) -> list[range]:
    pieces = comb[: _steps_below(comb, span.start)], comb[_steps_below(comb, span.stop) :]
    return [piece for piece in pieces if len(piece)]


def _steps_below(comb: range, bound: int) -> int:
    """How many numbers of the comb are smaller than the bound."""
    return min(max(-((comb.start - bound) // comb.step), 0), len(comb))


def _overlap(a: range, b: range) -> bool:
    return a.step != b.step or a.start % a.step == b.start % b.step
