"""The table of docs/speed.md and the pages of docs/speed/ beside public packages.

python benchmarks/peers.py --lengths 4096 --json > docs/peers/4096.json && make docs
"""

import json
from collections import Counter
from collections.abc import Iterable
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PASSES = {"forward": "forward", "train": "forward + backward"}
setting = itemgetter("scope", "causal", "pass")
SHORT = ("mechanism", "pass", "ms", "best peer", "ratio to it", "ratio to fused softmax", "share of the machine")  # fmt: skip


def read(name: str) -> Any:
    """What a file of docs/ holds as JSON."""
    return json.loads((FOLDER / name).read_text())


def fused(rows: list[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    """Setting -> what was measured of fused softmax in it."""
    return {setting(row): row["ours"] for row in rows if row["mixer"] == "softmax"}


def beside_peers(length: int, columns: tuple[str, ...] = ()) -> str:
    """One row for each mechanism and pass: time, beside its best peer, beside fused softmax, share of the machine."""
    found = read(f"peers/{length}.json")
    exact, rows = fused(found["rows"]), []
    for row in found["rows"]:
        ours, softmax = row["ours"], exact.get(setting(row))
        best = next((one for one in row["peers"] if one["peer"] == row["best_peer"]), {})
        other = "" if best.get("function") == "same" else " (nearest)"
        rows.append(
            {
                "mechanism": row["pair"],
                "pass": PASSES[row["pass"]],
                "ms": ours["ms"],
                "peak MiB": _mebibytes(ours),
                "best peer": best["peer"] + other if best else None,
                "its ms": best.get("ms"),
                "its peak MiB": _mebibytes(best),
                "ratio to it": _against(row),
                "ratio to fused softmax": softmax and softmax["ms"] / ours["ms"],
                "share of the machine": row["share"] and f"{row['share']:.0%}",
            }
        )
    columns = columns or tuple(rows[0])
    return f"{_packages(found)}\n\n{table(columns, map(itemgetter(*columns), rows))}"


def page(length: int) -> str:
    method = "Columns: [the method](../speed.md#method)."
    return f"# {length:,} tokens beside public packages\n\n{method}\n\n{beside_peers(length)}\n"


PAGES = {f"speed/{length}.md": partial(page, length) for length in (1024, 4096, 16384)}
"""Page -> what makes its text."""


def on_cuda(folder: Path = FOLDER / "cuda") -> str:
    """What benchmarks/cuda.py found, if its files were copied to docs/cuda."""
    speed, laws = (
        [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        for path in (folder / "speed.jsonl", folder / "laws.jsonl")
    )
    if not speed:
        return "**Not run on CUDA.** `python benchmarks/cuda.py --out docs/cuda`, then `make docs`, fills this half."
    head = ("mechanism", "pass", "tokens", "type", "path", "ms", "ratio to fused softmax", "peak MiB")  # fmt: skip
    rows = []
    for row in speed:
        if row["key"][0] == "mixer" and row["key"][-1] == "auto" and "ms" in row:
            _, kind, work, tokens, name, _ = row["key"]
            name += " causal" * row["causal"]
            ratio, held = row["baseline_ms"] / row["ms"], row["peak_bytes"] / 2**20
            rows.append((name, work, int(tokens), kind, row["impl"], row["ms"], ratio, held))
    rows.sort(key=itemgetter(2, 3, 1, 0))
    outcomes = Counter(row.get("outcome", "did not end") for row in laws)
    checks = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    where = speed[0]["origin"]
    told = f"{where['device']}; torch {where['torch']}, python {where['python']}. Checks on the device: {checks or 'none'}."
    return f"{told}\n\n{table(head, rows)}"


def _packages(found: dict[str, Any]) -> str:
    """The origin, with the packages that were timed and the rate of matrix products in the same run."""
    where, rows = found["origin"], found["rows"]
    versions = ", ".join(" ".join(pair) for pair in where["versions"].items())
    rates = [row["matrix_rate"] / 1e9 for row in rows]
    timed = [(peer["package"], peer["version"]) for row in rows for peer in row["peers"]]
    peers = ", ".join(sorted({" ".join(pair) for pair in timed if all(pair)}))
    return (
        f"Commit {where['commit']}; {where['device']}; allocator {where['allocator']}; {versions}. "
        f"Command: `python benchmarks/{where['command']}`. "
        f"Matrix products {min(rates):.0f} to {max(rates):.0f} GFLOP/s in the same run; laws "
        f"{'checked' if found['checked'] else 'not checked'} in it. Peers: {peers}."
    )


def _against(row: dict[str, Any]) -> str | None:
    """The ratio with the bounds that hold its true median in nine of ten cases."""
    if row.get("ratio_low") is None:  # none, or of runs that did not pair the calls
        return row["ratio"] and _cell(row["ratio"])
    names = ("ratio", "ratio_low", "ratio_high")
    return "{} ({} to {})".format(*(_cell(row[name]) for name in names))


def table(head: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    """A table in Markdown; numbers have three digits."""
    names = list(head)
    first, *rest = (f"| {' | '.join(map(_cell, cells))} |" for cells in (names, *rows))
    return "\n".join([first, "|---" * len(names) + "|", *rest])


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"
    return "-" if value is None else str(value)


def _mebibytes(side: dict[str, Any]) -> int | None:
    held = side.get("peak_bytes")
    return None if held is None else round(held / 2**20)
