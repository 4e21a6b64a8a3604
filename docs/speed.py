"""The table of docs/speed.md and the pages of docs/speed/ beside public packages.

python benchmarks/peers.py --lengths 4096 --json > docs/peers/4096.json && make docs
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PASSES = {"forward": "forward", "train": "forward + backward"}
SHORT = ("mechanism", "pass", "ms", "best peer", "ratio to it", "ratio to fused softmax", "share of the machine")  # fmt: skip


def beside_peers(length: int, columns: tuple[str, ...] = ()) -> str:
    """One row for each mechanism and pass: time, beside its best peer, beside fused softmax, share of the machine."""
    found = json.loads((FOLDER / f"peers/{length}.json").read_text())
    of = [(row["scope"], row["causal"], row["pass"]) for row in found["rows"]]
    exact = {
        key: row["ours"]["ms"]
        for key, row in zip(of, found["rows"], strict=True)
        if row["mixer"] == "softmax"
    }
    rows = []
    for key, row in zip(of, found["rows"], strict=True):
        ours = row["ours"]
        best = next((one for one in row["peers"] if one["peer"] == row["best_peer"]), None)
        rows.append(
            {
                "mechanism": row["pair"],
                "pass": PASSES[row["pass"]],
                "ms": ours["ms"],
                "peak MiB": _mebibytes(ours),
                "best peer": best
                and best["peer"] + ("" if best["function"] == "same" else " (nearest)"),
                "its ms": best and best["ms"],
                "its peak MiB": best and _mebibytes(best),
                "ratio to it": _against(row),
                "ratio to fused softmax": (key in exact and exact[key] / ours["ms"]) or None,
                "share of the machine": row["share"] and f"{row['share']:.0%}",
            }
        )
    return f"{_packages(found)}\n\n{_shown(rows, columns)}"


def page(length: int) -> str:
    method = "Columns: [the method](../speed.md#method)."
    return f"# {length:,} tokens beside public packages\n\n{method}\n\n{beside_peers(length)}\n"


PAGES: dict[str, Callable[[], str]] = {
    f"{length}.md": partial(page, length) for length in (1024, 4096, 16384)
}
"""File name in docs/speed -> what makes its text."""


def on_cuda(folder: Path = FOLDER / "cuda") -> str:
    """What benchmarks/cuda.py found, if its files were copied to docs/cuda."""
    speed, laws = (
        [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        for path in (folder / "speed.jsonl", folder / "laws.jsonl")
    )
    if not speed:
        return "**Not run on CUDA.** `python benchmarks/cuda.py --out docs/cuda`, then `make docs`, fills this half."
    rows = [
        {
            "mechanism": f"{row['key'][4]}{' causal' if row['causal'] else ''}",
            "pass": row["key"][2],
            "tokens": int(row["key"][3]),
            "type": row["key"][1],
            "path": row["impl"],
            "ms": row["ms"],
            "ratio to fused softmax": row["baseline_ms"] / row["ms"],
            "peak MiB": row["peak_bytes"] / 2**20,
        }
        for row in speed
        if row["key"][0] == "mixer" and row["key"][-1] == "auto" and "ms" in row
    ]
    rows.sort(key=lambda row: (row["tokens"], row["type"], row["pass"], row["mechanism"]))
    outcomes = Counter(row.get("outcome", "did not end") for row in laws)
    checks = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    where = speed[0]["origin"]
    told = f"{where['device']}; torch {where['torch']}, python {where['python']}. Checks on the device: {checks or 'none'}."
    return f"{told}\n\n{_shown(rows)}"


def _packages(found: dict[str, Any]) -> str:
    """The origin, with the packages that were timed and the rate of matrix products in the same run."""
    where = found["origin"]
    versions = ", ".join(" ".join(pair) for pair in where["versions"].items())
    rates = sorted(row["matrix_rate"] / 1e9 for row in found["rows"])
    peers = {
        f"{peer['package']} {peer['version']}"
        for row in found["rows"]
        for peer in row["peers"]
        if peer["package"] and peer["version"]
    }
    return (
        f"Commit {where['commit']}; {where['device']}; allocator {where['allocator']}; {versions}. "
        f"Command: `python benchmarks/{where['command']}`. "
        f"Matrix products {rates[0]:.0f} to {rates[-1]:.0f} GFLOP/s in the same run; laws "
        f"{'checked' if found['checked'] else 'not checked'} in it. Peers: {', '.join(sorted(peers))}."
    )


def _against(row: dict[str, Any]) -> str | None:
    """The ratio with the bounds that hold its true median in nine of ten cases."""
    if row.get("ratio_low") is None:  # none, or of runs that did not pair the calls
        return row["ratio"] and _cell(row["ratio"])
    names = ("ratio", "ratio_low", "ratio_high")
    return "{} ({} to {})".format(*(_cell(row[name]) for name in names))


def _shown(rows: list[dict[str, Any]], columns: tuple[str, ...] = ()) -> str:
    columns = columns or tuple(rows[0])
    return "\n".join(table(columns, ([_cell(row[name]) for name in columns] for row in rows)))


def table(head: Iterable[Any], rows: Iterable[Iterable[Any]]) -> list[str]:
    """Lines of a table in Markdown."""
    names = list(head)
    lines = [f"| {' | '.join(map(str, cells))} |" for cells in (names, *rows)]
    return [lines[0], "|---" * len(names) + "|", *lines[1:]]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"
    return "-" if value is None else str(value)


def _mebibytes(side: dict[str, Any]) -> int | None:
    return None if side["peak_bytes"] is None else round(side["peak_bytes"] / 2**20)
