"""The table of docs/scale.md, from counts on tensors without memory: `python docs/scale.py && make docs`.

docs/scale.json holds, for each mechanism and order of time, operations of one layer's mixing at LENGTHS, and elements that a rank sends at SMALL lengths
among RANKS; both are carried on to other lengths by how they grow. The last column's model of time is in docs/scale.md.
"""

import json
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from speed import table

import regard
from regard.core import Mask, Mixer, OptionError, growth
from regard.parallel import elements, way_of
from regard.testing.counting import count

FILE = Path(__file__).with_suffix(".json")
D, H, LAYERS = 4096, 32, 32
LENGTHS, SMALL = (2048, 8192), (1024, 2048)
RANKS = [2**n for n in range(13)]
FLOPS_OF_ELEMENT = 16_000
"""Operations in the time of one sent element: 2 bytes at 50 GB/s, beside 400 TFLOP/s."""
FEED_FORWARD = 16 * D * D  # operations of a token in a layer of width 4 D
SHOWN = ((8, 2**16, "64 k"), (64, 2**20, "1 M"), (4096, 2**24, "16 M"))
"""Ranks and tokens of the columns of elements."""


def built(name: str, length: int) -> Mixer:
    with torch.device("meta"):
        try:
            return regard.build(name, dim=D, num_heads=H).eval()
        except OptionError:  # its structure comes from max_len
            return regard.build(name, dim=D, num_heads=H, max_len=length).eval()


def counted(name: str, causal: bool) -> dict[str, Any]:
    mask, flops = Mask(causal=causal), []
    for length in LENGTHS:
        mixer, x = built(name, length), torch.empty(1, length, D, device="meta")
        with torch.no_grad():
            flops.append(count(lambda mixer=mixer, x=x: mixer(x, mask=mask)).flops)
    small, can = [(built(name, length), length) for length in SMALL], mixer.capabilities
    ways = {size: way_of(mixer, mask, size=size) for size in RANKS}
    first = {way: size for size, way in reversed(ways.items())}
    sent = {}
    with torch.no_grad():
        for size in RANKS if can.exchange == "means" else first.values():
            sent[str(size)] = [elements(one, length, mask, size=size) for one, length in small]
    reach = getattr(mixer, "reach", None) or 0
    return {
        "mixer": name, "causal": causal, "flops": flops, "growth": growth(can.time, *LENGTHS), "ways": ways, "first": first,
        "sent": sent, "reach": reach, "feed_forward": not can.includes_ffn,
    }  # fmt: skip


def measured() -> list[dict[str, Any]]:
    return [
        counted(name, causal)
        for name, cls in regard.MIXERS.items()
        for causal, order in ((True, "causal"), (False, "bidirectional"))
        if getattr(cls.capabilities, order)
    ]


def flops(row: dict[str, Any], length: int) -> float:
    """Operations of one token in one layer's mixing, projections included: a T + b T^growth."""
    low, high = (flops / length for flops, length in zip(row["flops"], LENGTHS, strict=True))
    power = row["growth"] - 1
    if power < 0.01:
        return high
    b = (high - low) / (LENGTHS[1] ** power - LENGTHS[0] ** power)
    return low + b * (length**power - LENGTHS[0] ** power)


def sent(row: dict[str, Any], length: int, size: int) -> float:
    """Elements that a rank sends for each of its tokens, in one layer, forward."""
    if size == 1:
        return 0.0
    way = row["ways"][str(size)]
    at = str(size) if str(size) in row["sent"] else str(row["first"][way])
    low, high = row["sent"][at]
    slope = (high - low) / (SMALL[1] - SMALL[0])
    total = low + slope * (length - SMALL[0])
    if way == "heads" and at != str(size):
        total *= row["first"][way] / size
    return total * size / length


def busy(row: dict[str, Any], length: int, size: int) -> float:
    """Share of the ranks' time that is work which one process would do too."""
    mixing, rest = flops(row, length), FEED_FORWARD * row["feed_forward"]
    way = row["ways"][str(size)] if size > 1 else ""
    halo = (1 if row["causal"] else 2) * row["reach"] * size / length
    again = {"tokens": size, "halo": 1 + halo}.get(way, 1)
    time = again * mixing + rest + FLOPS_OF_ELEMENT * sent(row, length, size)
    waiting = LAYERS / (LAYERS + size - 1) if way == "state" else 1
    return waiting * (mixing + rest) / time


def last(row: dict[str, Any], length: int) -> int:
    """The most ranks of which half of the time is work."""
    return max(size for size in RANKS if size <= length and busy(row, length, size) >= 0.5)


def scales() -> str:
    """One row for each mechanism; where its orders of time differ: causal / any."""
    rows = []
    for name, orders in groupby(json.loads(FILE.read_text()), key=itemgetter("mixer")):
        cells = zip(*map(_cells, orders), strict=True)
        same = (" / ".join(dict.fromkeys(cell)) for cell in cells)
        rows.append((f"`{name}`", *same))
    many = [f"elements, w = {size:,}, T = {name}" for size, _, name in SHOWN]
    head = ("mechanism", "way, ranks from", "FLOPs, T = 4 k", "T = 256 k", "T = 16 M", *many)
    return table((*head, "ranks at T = 64 k, 1 M, 16 M"), rows)


def _cells(row: dict[str, Any]) -> Iterator[str]:
    ways = dict(sorted(row["first"].items(), key=lambda pair: pair[1]))
    yield ", ".join(f"{way} {size:,}" if size > 1 else way for way, size in ways.items())
    for length in (2**12, 2**18, 2**24):
        yield _short(flops(row, length))
    for size, length, _ in SHOWN:
        yield _short(sent(row, length, size))
    yield ", ".join(f"{last(row, length):,}" for _, length, _ in SHOWN)


def _short(number: float) -> str:
    """Two digits, and a letter for thousands, millions ..."""
    for letter, unit in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= unit:
            return f"{_short(number / unit)} {letter}"
    return f"{number:.2g}" if number < 100 else f"{number:.0f}"


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(row) for row in measured())
    FILE.write_text(f"[\n{lines}\n]\n")
