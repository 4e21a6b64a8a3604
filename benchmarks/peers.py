"""Our mechanisms beside public packages: python benchmarks/peers.py [--only local reformer] [--lengths 1024] [--json]

Same inputs, same width (8 heads of 64, batch 1, float32), CPU. All entries of one length are interleaved in one process; above 8,192 tokens each
mechanism has a process of its own, since together they need more memory than there is. Figures are medians, under the allocator that is found.

The packages are optional. pip install -e '.[peers]' brings the versions that were timed; one more is compiled against torch:
pip install --no-build-isolation pytorch-fast-transformers==0.4.0. Absent ones are listed as absent.

ratio: the best peer's time over ours, the median of the rounds, in each of which the two are called one after the other; from, to: bounds that hold the
true median in nine of ten cases. share: necessary operations of mixing over its time, as a part of the rate of a matrix product measured in the same
rounds; channel projections and their time at full rate are taken out, and a training step counts as three forward passes.
"""

import sys
from collections.abc import Iterable
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from comparison import Order, rows as measured
from measuring import Flag, Json, in_a_process, run
from pairs import Pair, Pass, chosen

from regard.cli.printing import print_json, print_table
from regard.lab.experiment.entry import Entry
from regard.lab.experiment.ledger import Ledger
from regard.lab.experiment.mechanism_laws import fault
from regard.lab.experiment.provenance import provenance

ROUNDS = {1024: 7, 4096: 5, 16384: 3}
TOGETHER = 8192  # tokens up to which all mechanisms share a process


def main(
    only: tuple[str, ...] = (),
    lengths: tuple[int, ...] = (1024, 4096, 16384),
    passes: tuple[Pass, ...] = ("forward", "train"),
    rounds: int | None = None,
    clock: Literal["wall", "processor"] = "wall",
    unchecked: Flag = False,
    ledger: Path = Path("runs/arena/ledger.sqlite"),
    json_: Json = False,
) -> int:
    """Time installed public packages beside ours.

    Args:
        only: names of mechanisms; all of them by default
        lengths: tokens; at 16,384 some entries are left out for lack of memory
        passes: a forward pass, a forward and backward pass
        rounds: of every entry; by default 7, 5 and 3 at 1,024, 4,096 and 16,384 tokens
        clock: "processor" counts time on the processor, for one thread on a machine that others use too
        unchecked: time without checking the laws; the output says so
        ledger: where the verdicts on the laws are kept
        json_: print data instead of tables
    """
    pairs = chosen(only)
    faults = {} if unchecked else _faults({pair.mixer for pair in pairs}, ledger)
    pairs = [pair for pair in pairs if pair.mixer not in faults]
    rows = []
    for length in lengths:
        for some in _groups(pairs, length):
            names = tuple(pair.name for pair in some)
            order = Order(names, length, passes, rounds or _rounds(length), clock)
            rows += in_a_process(measured, order)
    rows = [row | _judged(row) for row in rows]
    origin = provenance()
    if json_:
        print_json(
            {
                "rows": rows,
                "broken": faults,
                "checked": not unchecked,
                "clock": clock,
                "origin": asdict(origin),
            }
        )
        return 0
    for length in lengths:
        print_table(
            map(_line, (r for r in rows if r["length"] == length)), title=f"{length} tokens"
        )
    _print_end(rows, faults, unchecked)
    print(
        f"{clock} clock; {origin.device}; allocator {origin.allocator}; {origin.versions}; {origin.commit}"
    )
    return 0


def _faults(mixers: Iterable[str], path: Path) -> dict[str, str]:
    with Ledger(path) as ledger:
        found = {}
        for mixer in sorted(mixers):
            print(f"laws  {mixer}", file=sys.stderr, flush=True)
            found[mixer] = fault(Entry(mixer=mixer), ledger)
    return {mixer: fault for mixer, fault in found.items() if fault is not None}


def _rounds(length: int) -> int:
    return next((rounds for most, rounds in ROUNDS.items() if length <= most), 3)


def _groups(pairs: list[Pair], length: int) -> list[list[Pair]]:
    if length <= TOGETHER:
        return [pairs]
    return [list(some) for _, some in groupby(pairs, key=lambda pair: pair.mixer)]


def _judged(row: dict[str, Any]) -> dict[str, Any]:
    """Best peer, ratio to it, and share of the matrix rate."""
    present = [peer for peer in row["peers"] if peer["absent"] is None]
    best = min(present, key=lambda peer: peer["ratio"], default=None)
    ratio = best and best["ratio"]
    rate, seconds = row["matrix_rate"], 1e-3 * row["ours"]["ms"]
    mixing = seconds - row["projection_flops"] / rate
    share = (row["flops"] - row["projection_flops"]) / mixing / rate if mixing > 0 else None
    return {
        "best_peer": best and best["peer"],
        "ratio": ratio,
        "ratio_low": best and best["ratio_low"],
        "ratio_high": best and best["ratio_high"],
        "share": share,
    }


def _line(row: dict[str, Any]) -> dict[str, Any]:
    ours, peers = row["ours"], sorted(row["peers"], key=lambda p: p.get("ms", float("inf")))
    best = next((peer for peer in peers if peer["peer"] == row["best_peer"]), None)
    return {
        "pair": row["pair"],
        "pass": row["pass"],
        "ms": ours["ms"],
        "MiB": _mebibytes(ours),
        "peers, ms": "; ".join(f"{p['peer']} {_time(p)}" for p in peers) or "no peer",
        "MiB of the best": best and _mebibytes(best),
        "function": best["function"] if best else "-",
        "ratio": row["ratio"],
        "from": row["ratio_low"],
        "to": row["ratio_high"],
        "share": _percent(row["share"]),
    }


def _time(peer: dict[str, Any]) -> str:
    return f"{peer['ms']:.4g}" if peer["absent"] is None else f"({peer['absent']})"


def _mebibytes(side: dict[str, Any]) -> int | None:
    return None if side["peak_bytes"] is None else round(side["peak_bytes"] / 2**20)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _print_end(rows: list[dict[str, Any]], faults: dict[str, str], unchecked: bool) -> None:
    for why in faults.values():
        print(f"not timed: {why}")
    rates = sorted(row["matrix_rate"] / 1e9 for row in rows)
    if rates:
        print(f"matrix products: {rates[0]:.0f} to {rates[-1]:.0f} GFLOP/s beside the entries")
    used = {
        (peer["package"], peer["version"])
        for row in rows
        for peer in row["peers"]
        if peer["package"] and peer["version"]
    }
    print(
        "packages: " + (", ".join(f"{name} {version}" for name, version in sorted(used)) or "none")
    )
    print("laws: not checked (--unchecked)" if unchecked else "laws: checked on this source")


if __name__ == "__main__":
    run(main)
