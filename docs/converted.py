"""docs/findings/conversion.md, from what `python benchmarks/conversion.py` measured last and --keep copied here."""

import json
import statistics
from pathlib import Path
from typing import Any

KEPT = Path(__file__).parent / "findings" / "conversion.json"
QUESTION = "What is left of a trained model when another mechanism takes its attention's place, and what is gained?"
HEAD = f"""# Conversion

{QUESTION} `regard.hf.convert` re-uses all projections, and
`regard.hf.teach` then teaches for a few steps, first each layer alone, then the whole stack. Drawn from conversion.json, which
`OMP_NUM_THREADS=1 nice -n 19 python benchmarks/conversion.py` writes row by row; a killed run goes on with the rows that are missing.
"""
ENCODER = """## An encoder: MiniLM's sentence embeddings

all-MiniLM-L6-v2, 6 layers, 12 heads, width 384. Texts are paragraphs of this repository; those that are compared were not taught on.
Kept: the mean cosine between the embeddings of the model and of the converted one, before and after teaching; and how often the
nearest first half of a paragraph is that of its second half. Long texts have positions tiled from 512, for softmax too.
"""
LONG = """Speed and memory on one text of each length: seconds of softmax over those of the mechanism (above 1 is faster), the bytes that a
call added to the process's peak, and the cosine to softmax's embedding of that text.
"""
PAIRS = """Each call of a mechanism was timed right beside one of softmax; the ratio is the median of such pairs, whose number is in brackets."""
DECODER = """## A decoder: SmolLM2's perplexity

SmolLM2-135M-Instruct, 30 layers, 9 query heads over 3 key heads, rotary positions, weights of 4 bits. Perplexity of the tokens at
each distance from the start of a text that was not taught on. The window is 128 tokens with the query's own; sinks are the text's
first tokens, which all later ones see. Linear attention turns queries and keys by the model's rotary positions first,
and each of its layers is taught alone. A lower error of the layers need not be a lower perplexity of the stack.
"""


def page() -> str:
    found = json.loads(KEPT.read_text())
    encoder, decoder = found.get("encoder", {}), found.get("decoder", {})
    lines = [
        HEAD,
        *(
            ENCODER,
            *_quality(encoder),
            "",
            LONG,
            *_gains(encoder),
            "",
            PAIRS,
            found.get("note", ""),
            "",
        )
        * bool(encoder),
    ]
    if decoder:
        lines += [DECODER, *_perplexities(decoder), ""]
    return "\n".join([*lines, *_origins([*encoder.values(), *decoder.values()])]) + "\n"


def index_line() -> str:
    """The page's line in the index of findings."""
    if not KEPT.exists():
        return f"| conversion | {QUESTION} | not run yet |"
    rows = json.loads(KEPT.read_text()).get("encoder", {})
    told = "measured on a decoder alone"
    if rows:
        best = _best_first(rows)[0][0]
        longest, found = list(rows[best]["lengths"].items())[-1]
        told = (
            f"of {len(rows)} mechanisms {best} is nearest to softmax on a text of {int(longest):,} tokens: "
            f"cosine {found['cosine']:.2f} between MiniLM's embeddings, after {rows[best]['steps']}"
        )
    return f"| [conversion](conversion.md) | {QUESTION} | {told} |"


def _best_first(rows: dict[str, Any]) -> list[tuple[str, Any]]:
    """By the cosine on the longest text."""
    return sorted(rows.items(), key=lambda item: -list(item[1]["lengths"].values())[-1]["cosine"])


def _quality(rows: dict[str, Any]) -> list[str]:
    first = next(iter(rows.values()))
    (learned, held), teacher = first["paragraphs"], first["teacher's retrieval"]
    lines = [
        f"{learned:,} paragraphs to learn from, {held} held out, each cut at {first['longest']} tokens; {first['steps']}. At so few",
        "tokens a pattern of near tokens, or of a few blocks, may be all of softmax attention: the long texts below say more.",
        "",
        "| mechanism | options | cosine, untaught | cosine, taught | retrieval |",
        "|---|---|---|---|---|",
        f"| softmax | | 1 | 1 | {teacher:.0%} |",
    ]
    for name, row in _best_first(rows):
        options = ", ".join(f"{key}={value}" for key, value in row["options"].items())
        lines.append(
            f"| `{name}` | {options} | {row['untaught']:.3f} | {row['taught']:.3f} | {row['retrieval']:.0%} |"
        )
    return lines


def _gains(rows: dict[str, Any]) -> list[str]:
    lengths = list(next(iter(rows.values()))["lengths"])
    lines = [
        "| mechanism | " + " | ".join(f"{int(T):,} tokens" for T in lengths) + " |",
        "|---" * (len(lengths) + 1) + "|",
    ]
    for name, row in _best_first(rows):
        lines.append(f"| `{name}` | {' | '.join(_gain(row['lengths'][T]) for T in lengths)} |")
    return lines


def _gain(found: dict[str, Any]) -> str:
    ratio = statistics.median(found["ratios"])
    told = f"x{ratio:.2g} ({len(found['ratios'])})"
    if "softmax MB" in found:
        told += f", {found['mechanism MB']:.0f} of {found['softmax MB']:.0f} MB"
    return f"{told}, cosine {found['cosine']:.2f}"


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
        taught = row.get("steps", "")
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
