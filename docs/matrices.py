"""Draws who attends to whom, from the weights that the mixers really use.

Each drawing is the `attention_map` of a small mixer on one random sequence: rows are queries, columns are keys, and a cell is
the darker the larger its weight beside the largest of its row. `docs/patterns.md` shows them all. docs/effective.json holds, for every mixer, how far each output
moves with each token, which needs no weights; the site draws it.
"""

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import regard
from regard.functional import patterns

ROOT = Path(__file__).parent
FOLDER, PAGE, EFFECTIVE = ROOT / "matrices", ROOT / "patterns.md", ROOT / "effective.json"
STEP, LEAST = 1e-4, 1e-6  # of the difference quotient; the share of its row that counts as none
T, DIM, HEADS, CELL, GAP, HEAD = 32, 16, 2, 6, 16, 14
SHADES = 8  # from zero to the largest weight of a row
ORDER = torch.Generator().manual_seed(1)
INPUTS = torch.randn(1, T, DIM, dtype=torch.float64, generator=ORDER)

SHOWN = re.compile(
    r"!\[.*?\]\(matrices/(\S+\.svg)\)\n\n`regard\.build\(\"(\w+)\", (.*?)\.\.\.\)`(?:, global tokens? ([\d and]+))?"
)
"""In docs/patterns.md: a picture, the call below it, and its global tokens."""


def build(name: str, **options: Any) -> regard.Mixer:
    torch.manual_seed(0)
    return regard.build(name, dim=DIM, num_heads=HEADS, max_len=T, **options).double().eval()


def directions(mixer: regard.Mixer) -> Iterator[tuple[str, bool]]:
    for title, causal in (("bidirectional", False), ("causal", True)):
        if getattr(mixer.capabilities, title):
            yield title, causal


def maps(name: str, options: dict[str, Any], chosen: list[int]) -> dict[str, torch.Tensor]:
    """Title -> weights [T S], for every direction that the mixer has; of each head where they have patterns of their own."""
    mixer, marked = build(name, **options), None
    if chosen:
        marked = torch.zeros(1, T, dtype=torch.bool)
        marked[0, chosen] = True
    found = {}
    for title, causal in directions(mixer):
        with torch.no_grad():
            mask = regard.Mask(causal=causal, global_tokens=marked)
            weights = mixer.attention_map(INPUTS, mask=mask)[0]
        several = isinstance(options.get("patterns"), tuple)
        for head in range(HEADS if several else 1):
            found[f"{title}, head {head}" if several else title] = weights[head]
    return found


def digits(size: torch.Tensor, least: float = 0.0) -> list[str]:
    """One string for each row: 0 to 8 for each number, beside the largest of its row; what is above `least` of it shows."""
    share = size / size.amax(1, keepdim=True).clamp(min=1e-300)
    shade = (share * SHADES).round().clamp(min=1).where(share > least, 0).int()
    return ["".join(map(str, row)) for row in shade.tolist()]


def svg(maps: dict[str, list[str]], attributes: str) -> str:
    """Matrices side by side, from strings of digits; one path for each shade."""
    parts, left, height = [], 0, HEAD
    for title, rows in maps.items():
        high, wide = len(rows) * CELL, len(rows[0]) * CELL
        ground = f'x="{left}" y="{HEAD}" width="{wide}" height="{high}" fill-opacity=".07"'
        parts += [f'<text x="{left}" y="10">{title}</text>', f"<rect {ground}/>"]
        for shade in range(1, SHADES + 1):
            path = "".join(
                f"M{left + s * CELL} {HEAD + t * CELL}h{CELL}v{CELL}h-{CELL}z"
                for t, row in enumerate(rows)
                for s, digit in enumerate(row)
                if digit == str(shade)
            )
            if path:
                parts.append(f'<path d="{path}" fill-opacity="{shade / SHADES:g}"/>')
        left, height = left + wide + GAP, max(height, HEAD + high)
    box = f'viewBox="0 0 {left - GAP} {height}" width="{left - GAP}"'
    font = 'font-family="sans-serif" font-size="10"'
    return f"<svg {attributes} {box} {font}>{''.join(parts)}</svg>"


def pictures() -> dict[Path, str]:
    """The file of every picture in docs/patterns.md -> its text."""
    made = {}
    for file, name, options, chosen in SHOWN.findall(PAGE.read_text()):
        given = eval(f"dict({options})", vars(patterns))  # of our own page
        tokens = [int(token) for token in re.findall(r"\d+", chosen)]
        drawn = {title: digits(w.abs()) for title, w in maps(name, given, tokens).items()}
        made[FOLDER / file] = svg(drawn, 'xmlns="http://www.w3.org/2000/svg" fill="#1f4e79"') + "\n"
    return made


def effective(name: str) -> dict[str, list[str]]:
    """Direction -> how far each output moves with each token, as digits."""
    small = {"window_size": 4, "stride": 6, "block_size": 4, "chunk_size": 4, "num_clusters": 4}
    small |= {"num_landmarks": 4, "conv_size": 3, "top_k": 4}
    known = inspect.signature(regard.MIXERS[name]).parameters
    options = {option: value for option, value in small.items() if option in known}
    if name in ("strided", "routing"):
        options.pop("window_size")
    mixer = build(name, **options)
    steps = STEP * torch.eye(T * DIM, dtype=torch.float64).view(T * DIM, T, DIM)
    found = {}
    for title, causal in directions(mixer):
        mask = regard.Mask(causal=causal)
        with torch.no_grad():
            moved = mixer(INPUTS + steps, mask=mask) - mixer(INPUTS - steps, mask=mask)
        size = moved.view(T, DIM, T, DIM).pow(2).sum((1, 3)).sqrt().T  # [outputs tokens]
        found[title] = digits(size, LEAST)
    return found


def drawn() -> dict[Path, str]:
    """Every file that is made here -> its text."""
    found = {name: effective(name) for name in regard.MIXERS}
    return pictures() | {EFFECTIVE: json.dumps(found, indent=1) + "\n"}
