"""The table of docs/speed.md and the pages of docs/speed/, from what the programs of benchmarks/ measured.

python benchmarks/peers.py --lengths 4096 --json > docs/peers/4096.json && make docs
half.py, decoding.py, growth.py and spent.py, with --json too, give docs/half.json, docs/decoding.json, docs/growth.json and docs/spent.json.
"""

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
LENGTH = 4096  # of the table in docs/speed.md
PASSES = {"forward": "forward", "train": "forward + backward"}


def measured(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.json").read_text())


def table() -> str:
    """One row for each mechanism and pass: time, beside its best peer, beside fused softmax, share of the machine."""
    found = measured(f"peers/{LENGTH}")
    softmax = {
        (row["scope"], row["causal"], row["pass"]): row["ours"]["ms"]
        for row in found["rows"]
        if row["mixer"] == "softmax"
    }
    rows = []
    for row in found["rows"]:
        exact = softmax[row["scope"], row["causal"], row["pass"]]
        rows.append(
            {
                "mechanism": row["pair"],
                "pass": PASSES[row["pass"]],
                "ms": row["ours"]["ms"],
                "best peer": _peer(row),
                "ratio to it": _against(row),
                "ratio to fused softmax": exact / row["ours"]["ms"],
                "share of the machine": _percent(row["share"]),
            }
        )
    return "\n\n".join([_packages(found), _table(rows)])


def on_cuda(folder: Path = FOLDER / "cuda") -> str:
    """What benchmarks/cuda.py found, if its files were copied to docs/cuda."""
    speed = _lines(folder / "speed.jsonl")
    if not speed:
        return "**Not run on CUDA.** `python benchmarks/cuda.py --out docs/cuda`, then `make docs`, fills this half."
    where = speed[0]["origin"]
    rates = [
        f"{dtype} {row['matrix_flops'] / 1e12:.0f} TFLOP/s, copies {row['copy_bytes'] / 1e12:.2f} TB/s"
        for dtype, row in _keyed(speed, "machine")
    ]
    laws = Counter(
        "did not end" if "error" in row else row["outcome"] for row in _lines(folder / "laws.jsonl")
    )
    counted = ", ".join(f"{count} {outcome}" for outcome, count in sorted(laws.items()))
    broken = [
        f"`{' '.join(row['key'])}`"
        for row in _lines(folder / "laws.jsonl")
        if "error" in row or row["outcome"] == "failed"
    ]
    peers = {
        (dtype, kind, length, row["mixer"], row["scope"], row["causal"]): row["ms"]
        for dtype, kind, length, _, row in _keyed(speed, "peers")
        if "ms" in row
    }
    rows = []
    for dtype, kind, length, name, impl, row in _keyed(speed, "mixer"):
        if impl != "auto" or "ms" not in row:
            continue
        beside = peers.get((dtype, kind, length, name, "layer", row["causal"]), {})
        others = {peer: ms for peer, ms in beside.items() if peer != "ours"}
        best = min(others, key=others.__getitem__) if others else None
        rows.append(
            {
                "mechanism": f"{name}{' causal' if row['causal'] else ''}",
                "pass": kind,
                "tokens": int(length),
                "type": dtype,
                "path": row["impl"],
                "ms": row["ms"],
                "ratio to fused softmax": row["baseline_ms"] / row["ms"],
                "peak MiB": row["peak_bytes"] / 2**20,
                "best package": best,
                "ratio to it": best and others[best] / beside["ours"],
            }
        )
    rows.sort(key=lambda row: (row["tokens"], row["type"], row["pass"], row["mechanism"]))
    told = (
        f"{where['device']}; torch {where['torch']}, python {where['python']}. Matrix products in the same run: "
        f"{'; '.join(rates)}. Checks on the device: {counted or 'none'}."
    )
    if broken:
        told += f" Broken: {', '.join(broken)}."
    return f"{told}\n\n{_table(rows)}"


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _keyed(rows: list[dict[str, Any]], part: str) -> list[tuple[Any, ...]]:
    return [(*row["key"][1:], row) for row in rows if row["key"][0] == part]


def beside_peers(length: int) -> str:
    found = measured(f"peers/{length}")
    of = Counter(row["met"] for row in found["rows"] if row["met"] is not None)
    told = (
        f"Of {of.total()} targets {of['yes']} are met, {of['a tie']} are ties, {of['at the limit']} are at the "
        f"limit, {of['out of reach']} are out of reach and {of['no']} are missed."
    )
    rows = [_whole(row) for row in found["rows"]]
    return _page(
        f"{length:,} tokens beside public packages",
        "Columns: [the method](../speed.md#method). target: the least ratio, and the least share, that were set "
        "before the kernels were written. least ms: the operations that no form can do without, alone. met: "
        "a tie is missed by less than 15 %; out of reach and at the limit: the least time alone exceeds what "
        "the target allows, or lies within 15 % of it. " + told,
        _packages(found),
        _table(rows),
    )


def half() -> str:
    found = measured("half")
    enough = sum(row["gain"] >= row["aim"] for row in found["rows"])
    beyond = sum(
        row["gain"] < row["aim"] and (row["least gains"] or row["aim"]) < row["aim"]
        for row in found["rows"]
    )
    columns = ("pair", "pass", "float32 ms", "bfloat16 ms", "gain", "aim", "least gains")
    return _page(
        "bfloat16 beside float32",
        "4,096 tokens, 8 heads of 64, both types by turns in one run. The aim, twice the speed, is meant for mechanisms "
        "in which matrix products dominate. least gains: the gain of the operations that no form can do without, alone "
        "and at their own shapes; products of small tiles, exponentials and gathered rows gain little or lose. "
        f"{enough} of {len(found['rows'])} rows reach the aim; in {beyond} others the indispensable operations alone "
        f"do not. A product of large matrices gains {found['matrix_product_gain']:.1f}.",
        origin(found),
        _table(found["rows"], columns),
    )


def decoding() -> str:
    found = measured("decoding")
    columns = ("mixer", "context", "state", "step ms", "projections ms", "least ms")
    columns += ("of projections", "aim", "grown, of reserved", "transformers' cache ms")
    return _page(
        "One-token steps",
        "Width 512, 8 heads, batch 1. projections: the mixer's own, alone, on one token; a state of constant size aims "
        "at 1.3 times them at any context. least: plain products with the four weights and the fewest operators that "
        "move the state and read it (`benchmarks/decoding.py`). grown: a step without reserved room, the copies of "
        "doubling spread over the steps that they serve; the aim is 1.1.",
        origin(found),
        _table(found["rows"], columns),
    )


def spent() -> str:
    found = measured("spent")
    return _page(
        "Where a pass goes",
        "Mechanisms that missed a target. products: matrix products and fused attention. passes: one operation for each "
        "number. moved: copies, gathers, sorts and fills. All three by PyTorch's profiler, in the fastest call. the rest: "
        "the median time without the profiler less these three, which is calls, views, Python, the engine of autograd, and "
        "what cold memory costs.",
        origin(found),
        _table(found["rows"]),
    )


def growth() -> str:
    found = measured("growth")
    return _page(
        "Memory to 65,536 tokens",
        "What one call adds to the high-water mark of a process of its own, results and gradients included, for "
        "each mechanism whose time is not declared to grow as T^2. growth: the exponent of memory over length; 1 is in "
        "proportion to the tokens. Routing has one cluster for each 128 tokens here, and the affinities of all tokens with "
        "them are T^2 / 128 numbers a head: with a fixed number of clusters it grows as T.",
        origin(found),
        _table(found["rows"]),
    )


PAGES: dict[str, Callable[[], str]] = {
    **{f"{n}.md": partial(beside_peers, n) for n in (1024, 4096, 16384)},
    "bfloat16.md": half,
    "decoding.md": decoding,
    "memory.md": growth,
    "operators.md": spent,
}
"""File name in docs/speed -> what makes its text."""


def origin(found: dict[str, Any]) -> str:
    where = found["origin"]
    versions = ", ".join(" ".join(pair) for pair in where["versions"].items())
    return (
        f"Commit {where['commit']}; {where['device']}; allocator {where['allocator']}; {versions}. "
        f"Command: `python benchmarks/{where['command']}`."
    )


def _packages(found: dict[str, Any]) -> str:
    """The origin, with the packages that were timed and the rate of matrix products in the same run."""
    rates = sorted(row["matrix_rate"] / 1e9 for row in found["rows"])
    versions = {
        f"{peer['package']} {peer['version']}"
        for row in found["rows"]
        for peer in row["peers"]
        if peer["package"] and peer["version"]
    }
    return (
        f"{origin(found)} Matrix products {rates[0]:.0f} to {rates[-1]:.0f} GFLOP/s in the same run; laws "
        f"{'checked' if found['checked'] else 'not checked'} in it. Peers: {', '.join(sorted(versions))}."
    )


def _whole(row: dict[str, Any]) -> dict[str, Any]:
    best = _best(row)
    return {
        "mechanism": row["pair"],
        "pass": PASSES[row["pass"]],
        "ms": row["ours"]["ms"],
        "peak MiB": _mebibytes(row["ours"]),
        "best peer": _peer(row),
        "its ms": best and best["ms"],
        "its peak MiB": best and _mebibytes(best),
        "ratio": _against(row),
        "target ratio": row["target_ratio"],
        "share": _percent(row["share"]),
        "target share": _percent(row["target_share"]),
        "least ms": row["bound_ms"],
        "met": row["met"],
    }


def _best(row: dict[str, Any]) -> dict[str, Any] | None:
    return next((peer for peer in row["peers"] if peer["peer"] == row["best_peer"]), None)


def _peer(row: dict[str, Any]) -> str | None:
    best = _best(row)
    return best and best["peer"] + ("" if best["function"] == "same" else " (nearest)")


def _against(row: dict[str, Any]) -> str | None:
    """The ratio with the bounds that hold its true median in nine of ten cases."""
    if row.get("ratio_low") is None:  # none, or of runs that did not pair the calls
        return row["ratio"] and _cell(row["ratio"])
    return "{} ({} to {})".format(
        *(_cell(row[name]) for name in ("ratio", "ratio_low", "ratio_high"))
    )


def _page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", *parts]) + "\n"


def _table(rows: list[dict[str, Any]], columns: tuple[str, ...] | None = None) -> str:
    columns = columns or tuple(rows[0])
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    lines += [f"| {' | '.join(_cell(row[name]) for name in columns)} |" for row in rows]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return (
        (f"{value:.0f}" if value >= 1000 else f"{value:.3g}")
        if isinstance(value, float)
        else str(value)
    )


def _mebibytes(side: dict[str, Any]) -> int | None:
    return None if side["peak_bytes"] is None else round(side["peak_bytes"] / 2**20)


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.0%}"
