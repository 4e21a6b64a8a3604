"""Draws who attends to whom, from the weights that the mixers really use: `make docs`. With --check, says whether they are fresh.

Each drawing is the `attention_map` of a small mixer on one random sequence: rows are queries, columns are keys, and a cell is
the darker the larger its weight beside the largest of its row. `docs/patterns.md` shows them all. docs/effective.json holds, for every mixer, how far each output
moves with each token, which needs no weights; the site draws it.
"""

import inspect
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import regard
from regard.functional.patterns import First, Strided, Window

ROOT = Path(__file__).parent
FOLDER, PAGE = ROOT / "matrices", ROOT / "patterns.md"
EFFECTIVE = ROOT / "effective.json"
STEP, LEAST = (
    1e-4,
    1e-6,
)  # of the difference quotient; and the share of its row below which an influence counts as none
T, DIM, HEADS, CELL, GAP, HEAD = 32, 16, 2, 6, 16, 14
SHADES = 8  # from zero to the largest weight of a row


@dataclass(frozen=True)
class Drawing:
    """A mixer with the options that make its structure visible at 32 tokens."""

    mixer: str
    about: str
    options: dict[str, Any] = field(default_factory=dict)
    label: str = ""  # where a mixer is drawn more than once
    global_tokens: tuple[int, ...] = ()
    each_head: bool = False  # else only the first head is drawn

    @property
    def name(self) -> str:
        return f"{self.mixer}-{self.label}" if self.label else self.mixer

    def build(self) -> regard.Mixer:
        torch.manual_seed(0)
        made = regard.build(self.mixer, dim=DIM, num_heads=HEADS, max_len=T, **self.options)
        return made.double().eval()

    def maps(self) -> dict[str, torch.Tensor]:
        """Title -> weights [T S], for every direction that the mixer has."""
        mixer = self.build()
        x = torch.randn(1, T, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        chosen = None
        if self.global_tokens:
            chosen = torch.zeros(1, T, dtype=torch.bool)
            chosen[0, list(self.global_tokens)] = True
        found = {}
        for title, causal in (("bidirectional", False), ("causal", True)):
            if not getattr(mixer.capabilities, title):
                continue
            mask = regard.Mask(causal=causal, global_tokens=chosen)
            with torch.no_grad():
                weights = mixer.attention_map(x, mask=mask)[0]
            for head in range(HEADS if self.each_head else 1):
                found[f"{title}, head {head}" if self.each_head else title] = weights[head]
        return found


MIXED = (Window(4, 4) | First(1), Strided(6) | Window(1, 1))

DRAWINGS = (
    Drawing("softmax", "Every pair of tokens."),
    Drawing("local", "A window of 4 tokens on each side.", {"window_size": 4}),
    Drawing(
        "local",
        "The same window with a dilation of 3: every third token.",
        {"window_size": 4, "dilation": 3},
        "dilated",
    ),
    Drawing("strided", "Own block of the last 6, and every sixth.", {"stride": 6}),
    Drawing(
        "strided",
        "Fixed form: own block of 6, and the last token of each block.",
        {"kind": "fixed", "stride": 6},
        "fixed",
    ),
    Drawing(
        "strided",
        "A dilated window.",
        {"kind": "dilated", "stride": 3, "window_size": 4},
        "dilated",
    ),
    Drawing("global", "Tokens 0 and 15 see all and are seen by all.", {}, global_tokens=(0, 15)),
    Drawing(
        "head_mix",
        "One expression for each head: `Window(4, 4) | First(1)` and `Strided(6) | Window(1, 1)`.",
        {"patterns": MIXED},
        each_head=True,
    ),
    Drawing(
        "longformer",
        "A window of 3 on each side, and token 0 global with projections of its own.",
        {"window_size": 3},
        global_tokens=(0,),
    ),
    Drawing(
        "bigbird",
        "Blocks of 4: own and neighbouring, one random block, global first and last blocks (ITC).",
        {"block_size": 4, "num_random": 1},
    ),
    Drawing(
        "bigbird",
        "The same with 2 prefix keys, the first columns, in the place of global blocks (ETC).",
        {"block_size": 4, "num_random": 1, "num_external": 2, "global_blocks": False},
        "etc",
    ),
    Drawing(
        "luong_local",
        "Around a place that the query predicts.",
        {"window_size": 3, "alignment": "predictive"},
    ),
    Drawing(
        "reformer",
        "Tokens whose hashes agree, in chunks of 4; two rounds of hashes.",
        {"chunk_size": 4, "seed": 0},
    ),
    Drawing(
        "routing",
        "Tokens of the same clusters.",
        {"num_clusters": 4, "window_size": 8, "seed": 0},
    ),
    Drawing(
        "sinkhorn",
        "Blocks of 4: its own block, and one that the sorting network chooses.",
        {"block_size": 4, "temperature": 0.1},
    ),
    Drawing("fixed_patterns", "Weights by position alone: here the token itself.", {}),
    Drawing(
        "fixed_patterns",
        "The context to the left, and to the right.",
        {"patterns": ("left", "right")},
        "context",
        each_head=True,
    ),
)


def svg(drawing: Drawing) -> str:
    """The maps side by side; one rectangle for neighbouring cells of equal shade."""
    maps = drawing.maps()
    height = T * CELL + HEAD
    parts, left = [], 0
    for title, weights in maps.items():
        columns = weights.shape[1]
        parts.append(f'<text x="{left}" y="10">{title}</text>')
        parts.append(
            f'<rect x="{left}" y="{HEAD}" width="{columns * CELL}" height="{T * CELL}" fill="#f2f2f2"/>'
        )
        magnitude = weights.abs()
        share = magnitude / magnitude.amax(1, keepdim=True).clamp(min=1e-300)
        # what is not exactly zero shows, however small it is
        shade = (share * SHADES).round().clamp(min=1).where(magnitude > 0, 0).int().tolist()
        for row, shades in enumerate(shade):
            column = 0
            while column < columns:
                dark, start = shades[column], column
                while column < columns and shades[column] == dark:
                    column += 1
                if dark:
                    opacity = "" if dark == SHADES else f' fill-opacity="{dark / SHADES:g}"'
                    parts.append(
                        f'<rect x="{left + start * CELL}" y="{HEAD + row * CELL}" '
                        f'width="{(column - start) * CELL}" height="{CELL}"{opacity}/>'
                    )
        left += columns * CELL + GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left - GAP}" height="{height}" '
        f'viewBox="0 0 {left - GAP} {height}" font-family="sans-serif" font-size="10" fill="#1f4e79">'
    )
    return "\n".join([head, *parts, "</svg>", ""])


def effective(name: str) -> dict[str, list[str]]:
    """Direction -> one string for each output: a digit, 0 to 8, for how far it moves with each token."""
    small = {"window_size": 4, "stride": 6, "block_size": 4, "chunk_size": 4, "num_clusters": 4}
    known = inspect.signature(regard.MIXERS[name]).parameters
    options = {option: value for option, value in small.items() if option in known}
    if name == "strided" or name == "routing":
        options.pop("window_size")
    torch.manual_seed(0)
    mixer = regard.build(name, dim=DIM, num_heads=HEADS, max_len=T, **options).double().eval()
    x = torch.randn(1, T, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    steps = STEP * torch.eye(T * DIM, dtype=x.dtype).view(T * DIM, T, DIM)
    found = {}
    for title, causal in (("bidirectional", False), ("causal", True)):
        if not getattr(mixer.capabilities, title):
            continue
        mask = regard.Mask(causal=causal)
        with torch.no_grad():
            moved = mixer(x + steps, mask=mask) - mixer(x - steps, mask=mask)
        size = moved.view(T, DIM, T, DIM).pow(2).sum((1, 3)).sqrt().T  # [outputs tokens]
        share = size / size.amax(1, keepdim=True).clamp(min=1e-300)
        shade = (share * SHADES).round().clamp(min=1).where(share > LEAST, 0).int().tolist()
        found[title] = ["".join(map(str, row)) for row in shade]
    return found


def page() -> str:
    lines = [
        "# Who attends to whom",
        "",
        "Rows are queries and columns are keys, of one sequence of 32 tokens. Each drawing is made by `make docs` from the weights that",
        "the mixer itself reports and really uses (`attention_map`), so it cannot differ from the code. A cell is the darker the larger its",
        "weight beside the largest of its row; what is blank is exactly zero. Causal forms are drawn beside bidirectional ones.",
        "",
        "A pattern of your own is an expression: `Window(4, 4) | First(1)`, one for each head in `head_mix`.",
        "",
    ]
    for drawing in DRAWINGS:
        call = ", ".join(
            [f'"{drawing.mixer}"', *(f"{k}={v!r}" for k, v in drawing.options.items())]
        )
        lines += [
            f"## {drawing.name.replace('-', ', ')}",
            "",
            drawing.about,
            "",
            f"![{drawing.name}](matrices/{drawing.name}.svg)",
            "",
            f"`regard.build({call}, ...)`",
            "",
        ]
    return "\n".join(lines[:-1]) + "\n"


def main(check: bool) -> int:
    made = {FOLDER / f"{drawing.name}.svg": svg(drawing) for drawing in DRAWINGS} | {PAGE: page()}
    influence = {name: effective(name) for name in regard.MIXERS}
    made[EFFECTIVE] = json.dumps(influence, indent=1) + "\n"
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    stale += [path for path in FOLDER.glob("*") if path not in made]
    if not check:
        FOLDER.mkdir(exist_ok=True)
        for path in stale:
            if path in made:
                path.write_text(made[path])
            else:
                path.unlink()
    if stale:
        names = ", ".join(sorted(path.name for path in stale))
        print(f"{'stale' if check else 'rewritten'}: {names}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
