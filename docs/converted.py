"""docs/findings/conversion.md, from what `python benchmarks/conversion.py` measured last and --keep copied here."""

import json
from pathlib import Path
from typing import Any

KEPT = Path(__file__).parent / "findings" / "conversion.json"
QUESTION = "What is left of a trained model when another mechanism takes its attention's place, and what is gained?"
HEAD = f"""# Conversion

{QUESTION} `regard.hf.convert` re-uses all projections, and
`regard.hf.teach` then teaches for some steps, first each layer alone, then the whole stack, and keeps the weights that were best on
held-out text, those before the first step included. Drawn from conversion.json, which `OMP_NUM_THREADS=1 python
benchmarks/conversion.py` writes row by row, with `--part encoder`, `speed` or `decoder` one part; a killed run goes on with the rows that
are missing.
"""
ENCODER = """## An encoder: MiniLM's sentence embeddings

all-MiniLM-L6-v2, 6 layers, 12 heads, width 384. Texts are paragraphs of this repository: most are taught on, some choose the best
weights, and others compare both models. Kept: the mean cosine between the embeddings of the model and of the converted one, before and
after teaching, on paragraphs and on long texts of the held-out paragraphs one after the other; and how often the nearest first half of a
paragraph is that of its second half. Long texts have positions tiled from 512, for softmax too.
"""
SPEED = """## The encoder's speed and memory

One text of each length on one thread: seconds of softmax over those of the mechanism (above 1 is faster), and the bytes that a call
added to the process's peak. Each call of a mechanism was timed right beside one of softmax; the ratio
is the median of such pairs. In brackets: the interval that covers the median with at least 90 % certainty (all pairs, where they are
fewer than five), and the number of pairs.
"""
DECODER = """## A decoder: SmolLM2's perplexity

SmolLM2-135M-Instruct, 30 layers, 9 query heads over 3 key heads, rotary positions, weights of 4 bits. Perplexity of the tokens at
each distance from the start of texts that were not taught on. The window is 128 tokens with the query's own; sinks are the text's
first tokens, which all later ones see. Linear attention turns queries and keys by the model's rotary positions first.
"""


def page() -> str:
    found = json.loads(KEPT.read_text())
    parts = {name: found.get(name, {}) for name in ("encoder", "speed", "decoder")}
    lines = [HEAD]
    if parts["encoder"]:
        lines += [ENCODER, *_quality(parts["encoder"]), ""]
    if parts["speed"]:
        lines += [
            SPEED,
            *_gains(parts["speed"]),
            "",
            *([found["note"], ""] if found.get("note") else []),
        ]
    if parts["decoder"]:
        lines += [DECODER, *_perplexities(parts["decoder"]), ""]
    return (
        "\n".join([*lines, *_origins([row for rows in parts.values() for row in rows.values()])])
        + "\n"
    )


def index_line() -> str:
    """The page's line in the index of findings."""
    if not KEPT.exists():
        return f"| conversion | {QUESTION} | not run yet |"
    rows = json.loads(KEPT.read_text()).get("encoder", {})
    told = "measured on a decoder alone"
    if rows:
        rows = max(_alike(rows), key=len)
        best, row = _best_first(rows)[0]
        longest, cosine = list(row["taught"]["lengths"].items())[-1]
        told = (
            f"of {len(rows)} mechanisms {best} is nearest to softmax on a text of {int(longest):,} tokens: "
            f"cosine {cosine:.2f} between MiniLM's embeddings, after {_steps(row)}"
        )
    return f"| [conversion](conversion.md) | {QUESTION} | {told} |"


def _best_first(rows: dict[str, Any]) -> list[tuple[str, Any]]:
    """By the cosine on the longest text."""
    return sorted(rows.items(), key=lambda item: -list(item[1]["taught"]["lengths"].values())[-1])


def _quality(rows: dict[str, Any]) -> list[str]:
    """One table for all rows that were taught and compared alike."""
    return [line for group in _alike(rows) for line in (*_table(group), "")][:-1]


def _alike(rows: dict[str, Any]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, row in rows.items():
        how = [row[key] for key in ("texts", "longest", "steps", "tokens of a step")]
        found.setdefault(json.dumps(how), {})[name] = row
    return list(found.values())


def _table(rows: dict[str, Any]) -> list[str]:
    first = next(iter(rows.values()))
    texts, lengths = first["texts"], list(first["taught"]["lengths"])
    teacher = first["teacher's retrieval"]
    chosen = (
        f"{texts['choose']} to choose weights by" if texts["choose"] else "the last weights kept"
    )
    lines = [
        f"{texts['learn']:,} paragraphs to learn from, {chosen}, {texts['compare']} to compare, each cut at "
        f"{first['longest']} tokens; {_steps(first)}. Rates: {_rates(rows)}{'' if texts['choose'] else ', constant'}.",
        "In each cell: untaught, then taught; one number is the taught one.",
        "",
        f"| mechanism | options | paragraphs | retrieval | {' | '.join(f'{int(T):,} tokens' for T in lengths)} |",
        "|---" * (len(lengths) + 4) + "|",
        f"| softmax | | 1 | {teacher:.0%} | {' | '.join('1' for _ in lengths)} |",
    ]
    for name, row in _best_first(rows):
        options = ", ".join(f"{key}={value}" for key, value in row["options"].items())
        before, after = row["untaught"], row["taught"]
        cells = [
            *(
                _both(before.get(key), after[key], form)
                for key, form in (("paragraphs", ".3f"), ("retrieval", ".0%"))
            ),
            *(_both(before["lengths"].get(T), after["lengths"][T], ".3f") for T in lengths),
        ]
        lines.append(f"| `{name}` | {options} | {' | '.join(cells)} |")
    return lines


def _both(before: float | None, after: float, form: str) -> str:
    return f"{after:{form}}" if before is None else f"{before:{form}}, {after:{form}}"


def _steps(row: dict[str, Any]) -> str:
    layers, whole = row["steps"]
    told = f"{layers} steps layer by layer" + (f" and {whole} of the whole stack" if whole else "")
    return f"{told}, {row['tokens of a step']:,} tokens each"


def _rates(rows: dict[str, Any]) -> str:
    """Rates of both parts -> the mechanisms that were taught at them."""
    found: dict[tuple[float, ...], list[str]] = {}
    for name, row in rows.items():
        found.setdefault(tuple(row["rates"]), []).append(name)
    return "; ".join(
        f"{' and '.join(f'{rate:.0e}' for rate in rates)} for {', '.join(names)}"
        for rates, names in found.items()
    )


def _gains(rows: dict[str, Any]) -> list[str]:
    """One row a mechanism; a length that was not measured is an empty cell."""
    cells: dict[str, dict[int, str]] = {}
    for row in rows.values():
        cells.setdefault(row["mechanism"], {})[row["tokens"]] = _gain(row)
    lengths = sorted({row["tokens"] for row in rows.values()})
    lines = [
        "| mechanism | " + " | ".join(f"{T:,} tokens" for T in lengths) + " |",
        "|---" * (len(lengths) + 1) + "|",
    ]
    return lines + [
        f"| `{name}` | {' | '.join(found.get(T, '') for T in lengths)} |"
        for name, found in cells.items()
    ]


def _gain(row: dict[str, Any]) -> str:
    low, high = row["interval"]
    told = f"x{row['ratio']:.2g} ({low:.2g} to {high:.2g}; {len(row['ratios'])})"
    if row["MB"]:
        told += f", {row['MB']['mechanism']:.0f} of {row['MB']['softmax']:.0f} MB"
    return told


def _perplexities(rows: dict[str, Any]) -> list[str]:
    parts = list(next(iter(rows.values()))["perplexity"])
    lines = [
        "| model | " + " | ".join(f"tokens {part}" for part in parts) + " | taught |",
        "|---" * (len(parts) + 2) + "|",
    ]
    for name, row in rows.items():
        if "perplexity untaught" in row:
            cells = " | ".join(f"{row['perplexity untaught'][part]:.4g}" for part in parts)
            lines.append(f"| {name}, untaught | {cells} | |")
        cells = " | ".join(f"{row['perplexity'][part]:.4g}" for part in parts)
        taught = _steps(row) if "steps" in row else ""
        lines.append(f"| {name} | {cells} | {taught} |")
    return lines


def _origins(rows: list[dict[str, Any]]) -> list[str]:
    told = []
    for row in rows:
        origin = row["origin"]
        versions = ", ".join(f"{name} {version}" for name, version in origin["versions"].items())
        line = f"From `{origin['command']}` at commit {origin['commit']}; seed 0; {origin['device']}; {versions}."
        if line not in told:
            told.append(line)
    return told
