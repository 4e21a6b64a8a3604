"""The chart of docs/speed.svg and the tables of docs/speed.md, from what the programs of benchmarks/ measured.

python benchmarks/peers.py --lengths 4096 --json > docs/peers/4096.json && python docs/speed.py && make docs
half.py, decoding.py, growth.py and spent.py, with --json too, write docs/half.json, docs/decoding.json, docs/growth.json and docs/spent.json.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import altair as alt

FOLDER = Path(__file__).parent
PEERS, CHART = FOLDER / "peers", FOLDER / "speed.svg"
LENGTH = 4096  # of the chart
PASSES = {"forward": "forward", "train": "forward + backward"}


def measured(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def table() -> str:
    """A section for each length: ours and the best peer, in one interleaved run."""
    lines = list[str]()
    for path in sorted(PEERS.glob("*.json"), key=lambda path: int(path.stem)):
        found = measured(path)
        lines += [
            f"### {int(path.stem):,} tokens",
            "",
            origin(found),
            "",
            "| mechanism | pass | ms | peak MiB | best peer | its ms | its peak MiB | ratio | target | share | target | least ms | met |",
            "|---" * 13 + "|",
            *map(_line, found["rows"]),
            "",
        ]
    return "\n".join(lines[:-1])


def caption() -> str:
    """Of the chart, where it stands without the tables."""
    return _where(measured(PEERS / f"{LENGTH}.json"))


def origin(found: dict[str, Any]) -> str:
    where = found["origin"]
    rates = sorted(row["matrix_rate"] / 1e9 for row in found["rows"])
    versions = {
        (peer["package"], peer["version"])
        for row in found["rows"]
        for peer in row["peers"]
        if peer["package"] and peer["version"]
    }
    versions |= set(where["versions"].items())
    of = Counter(row["met"] for row in found["rows"] if row["met"] is not None)
    return (
        f"Of {of.total()} targets {of['yes']} are met, {of['a tie']} are ties, {of['at the limit']} are at the limit, {of['out of reach']} are out of reach and {of['no']} are missed. Commit {where['commit']}; {where['device']}, float32; allocator "
        f"{where['allocator']}; matrix products {rates[0]:.0f} to {rates[-1]:.0f} GFLOP/s in the same runs; "
        f"{', '.join(' '.join(pair) for pair in sorted(versions))}. "
        f"Command: `python benchmarks/{where['command']}`; laws {'checked' if found['checked'] else 'not checked'} in that run."
    )


def half() -> str:
    """bfloat16 beside float32."""
    found = measured(FOLDER / "half.json")
    aims = [row["gain"] >= row["aim"] for row in found["rows"]]
    beyond = [
        row["gain"] < row["aim"] and (row.get("least gains") or row["aim"]) < row["aim"]
        for row in found["rows"]
    ]
    return "\n".join(
        [
            f"{sum(aims)} of {len(aims)} rows gain as much as the aim; in {sum(beyond)} others the indispensable operations alone do not; a product of large matrices gains "
            f"{found['matrix_product_gain']:.1f}. {_where(found)}",
            "",
            *_rows(
                found["rows"],
                ("pair", "pass", "float32 ms", "bfloat16 ms", "gain", "aim", "least gains"),
            ),
        ]
    )


def decoding() -> str:
    """One-token steps."""
    found = measured(FOLDER / "decoding.json")
    columns = ("mixer", "context", "state", "step ms", "projections ms", "least ms")
    columns += ("of projections", "aim", "grown, of reserved", "transformers' cache ms")
    return "\n".join([_where(found), "", *_rows(found["rows"], columns)])


def spent() -> str:
    """A pass by kind of operator."""
    found = measured(FOLDER / "spent.json")
    return "\n".join([_where(found), "", *_rows(found["rows"], tuple(found["rows"][0]))])


def growth() -> str:
    """Peak memory at two lengths."""
    found = measured(FOLDER / "growth.json")
    return "\n".join([_where(found), "", *_rows(found["rows"], tuple(found["rows"][0]))])


def _rows(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for row in rows:
        cells = (_number(x) if isinstance(x, float | None) else x for x in map(row.get, columns))
        yield f"| {' | '.join(map(str, cells))} |"


def _where(found: dict[str, Any]) -> str:
    where = found["origin"]
    versions = ", ".join(" ".join(pair) for pair in where["versions"].items())
    return (
        f"Commit {where['commit']}; {where['device']}; allocator {where['allocator']}; {versions}. "
        f"Command: `python benchmarks/{where['command']}`."
    )


def _line(row: dict[str, Any]) -> str:
    best = next((peer for peer in row["peers"] if peer["peer"] == row["best_peer"]), None)
    cells = [
        row["pair"],
        PASSES[row["pass"]],
        f"{row['ours']['ms']:.3g}",
        _mebibytes(row["ours"]),
        best["peer"] + ("" if best["function"] == "same" else " (nearest)") if best else "none",
        f"{best['ms']:.3g}" if best else "-",
        _mebibytes(best) if best else "-",
        _number(row["ratio"]),
        _number(row["target_ratio"]),
        _percent(row["share"]),
        _percent(row["target_share"]),
        _number(row["bound_ms"]),
        row["met"] or "-",
    ]
    return f"| {' | '.join(cells)} |"


def _mebibytes(side: dict[str, Any]) -> str:
    return "-" if side["peak_bytes"] is None else f"{side['peak_bytes'] / 2**20:.0f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def chart() -> alt.LayerChart:
    """Ratio to the best peer at LENGTH tokens, one mark for each pass, and the target as a tick."""
    rows = [
        {
            "mechanism": row["pair"],
            "pass": PASSES[row["pass"]],
            "ratio": row["ratio"],
            "target": row["target_ratio"],
        }
        for row in measured(PEERS / f"{LENGTH}.json")["rows"]
        if row["ratio"] is not None
    ]
    data = alt.Data(values=rows)
    order = list(dict.fromkeys(row["mechanism"] for row in rows))
    y = alt.Y("mechanism:N", sort=order, title=None, axis=alt.Axis(labelLimit=220))
    offset = alt.YOffset("pass:N", sort=list(PASSES.values()))
    shown = [row[name] for row in rows for name in ("ratio", "target") if row[name] is not None]
    scale = alt.Scale(type="log", nice=False, domain=[0.9 * min(1, *shown), 1.1 * max(1, *shown)])
    base = alt.Chart(data)
    bars = base.mark_bar().encode(
        y=y,
        yOffset=offset,
        x=alt.X("ratio:Q", scale=scale, title="time of the best peer / ours", stack=None),
        x2=alt.datum(1),
        color=alt.Color(
            "pass:N",
            sort=list(PASSES.values()),
            scale=alt.Scale(domain=list(PASSES.values()), range=["#3f7fd1", "#9dbfe8"]),
            legend=alt.Legend(title=None, orient="top"),
        ),
    )
    ticks = base.mark_tick(color="#c8503c", thickness=2).encode(
        y=y, yOffset=offset, x=alt.X("target:Q", scale=scale)
    )
    even = alt.Chart(alt.Data(values=[{"x": 1}])).mark_rule(color="#848b94").encode(x="x:Q")
    return alt.layer(bars, ticks, even).properties(
        width=520,
        title=alt.TitleParams(
            f"Beside public packages, {LENGTH:,} tokens, CPU",
            subtitle="red: the target",
            anchor="start",
        ),
    )


if __name__ == "__main__":
    chart().save(CHART)
