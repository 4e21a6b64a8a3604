"""Generated pages of the site: one for each mechanism, one of the public names; and the two directives of the tutorial.

```{matrix} fnet     the effective matrix, drawn from docs/effective.json
```{saved} local     time and memory beside fused softmax at every measured length, which the reader chooses, from docs/peers/
"""

import inspect
import json
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import Any

import api
import matrices
import speed
import torch
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import regard
from regard.cli.describe import about
from regard.core import tensors

FOLDER = speed.FOLDER / "reference"
SIZES = {"dim": 64, "num_heads": 4, "max_len": 128}
"""Sizes of the mixer whose streaming state a page shows."""
MOVES = """How far output t moves when token s moves: the norm of dy_t / dx_s, of a small layer with random weights at 32 tokens, \
relative to the largest of its row. Rows are outputs."""

_read = cache(speed.read)


class Matrix(SphinxDirective):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        rows = _read("effective.json")[self.arguments[0]]
        drawn = matrices.svg(rows, 'class="matrix" role="img" fill="currentColor"')
        return [nodes.raw("", drawn, format="html")]


def timings(mixer: str) -> list[dict[str, Any]]:
    """What was measured of this mixer at any length, with fused softmax of the same length, scope and pass beside it where it was."""
    rows = []
    for length in sorted(int(path.stem) for path in (speed.FOLDER / "peers").glob("*.json")):
        found = _read(f"peers/{length}.json")["rows"]
        exact = speed.fused(found)
        for row in found:
            setting = speed.setting(row)
            if row["mixer"] == mixer and setting in exact and row["ours"]:
                what = f"{row['pass']}, {row['scope']}{', causal' if row['causal'] else ''}"
                facts = {"length": length, "what": what}
                for whose, side in (("", row["ours"]), ("softmax_", exact[setting])):
                    held = side.get("peak_bytes")
                    facts |= {f"{whose}ms": side["ms"], f"{whose}mib": held and held / 2**20}
                rows.append(facts)
    return rows


class Saved(SphinxDirective):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        rows = timings(self.arguments[0])
        if not rows:
            return [nodes.paragraph("", "Not timed beside fused softmax attention.")]
        data = json.dumps(rows).replace("&", "&amp;").replace("'", "&#39;").replace("<", "&lt;")
        lang = "zh" if self.env.docname.endswith(".zh") else "en"
        text = f"<div class='saved' lang='{lang}' data-mixer='{self.arguments[0]}' data-rows='{data}'></div>"
        return [nodes.raw("", text, format="html")]


def mechanism(cls: type[regard.Mixer]) -> str:
    """The page of one mixer."""
    told, whole = about("mixers", cls), cls.capabilities.approximates
    taken = inspect.signature(cls).parameters
    taken = ", ".join(f"{name}={size}" for name, size in SIZES.items() if name in taken)
    can = {name.replace("_", " "): answer for name, answer in told["capabilities"].items()}
    largest = f"{told['finite_to']:g}"
    can["inputs in float16"] = f"finite results to a scale of {largest}, where softmax's are"
    cost = ((of, f"`{growth}`" if growth else "-") for of, growth in told["cost"].items())
    use = f'mixer = regard.build("{cls.name}", {taken})\ny = mixer(x)'
    return _paragraphs(
        f"# {cls.name}",
        told["paper"] + (f". It approximates `{whole}`." if whole else "."),
        _fenced("text", told["text"]),
        "The text says equation, cost, and where this differs from the paper or popular code.",
        "## Shapes and use",
        "`x [B T D] -> y [B T D]`; B rows, T tokens, D = `dim`.",
        _fenced("python", use),
        "## Options",
        _table(("option", "default", "values", "meaning"), _options(told)),
        "## What it can do",
        _table(("capability", "answer"), can.items()),
        "## Cost",
        _table(("of", "grows as"), cost),
        *_state(cls),
        "## Effective matrix",
        MOVES,
        _fenced(f"{{matrix}} {cls.name}"),
        "## Measured",
        _fenced(f"{{saved}} {cls.name}"),
        *_laws(cls.name),
    )


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(texts) + "\n"


def _fenced(kind: str, *lines: str) -> str:
    return "\n".join([f"```{kind}", *lines, "```"])


def _options(told: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for option in told["options"]:
        needed = "needed" if option["required"] else f"`{option['default']!r}`"
        stack = " (a model gives it)" if option["given_by_the_stack"] else ""
        yield f"`{option['name']}`", needed + stack, option["values"], option["meaning"]


def _state(cls: type[regard.Mixer]) -> Iterator[str]:
    if cls.capabilities.streaming:
        torch.manual_seed(0)
        state = regard.build(cls.name, **SIZES).initial_state(2)
        sizes = ", ".join(f"{name} {size}" for name, size in SIZES.items())
        yield "## Streaming state"
        yield f"`initial_state(2)` before the first token, with {sizes}:"
        rows = ((f"`{name}`", _shape(value)) for name, value in tensors(state).items())
        yield _table(("field", "holds"), rows)


def _shape(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"`{list(value.shape)}` {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, tuple) and value:
        return "; ".join(map(_shape, value))
    return f"`{type(value).__name__}`" if value is not None else "nothing"


def _laws(name: str) -> Iterator[str]:
    told = _read("laws.json")
    if found := told["matrix"].get(name):
        comparisons = sum(law["comparisons"] for law in found.values())
        run = f"{len(found)} laws were run on it, with {comparisons:,} comparisons"
        yield f"{run}, at commit {told['commit']} ([trust](../trust.md))."


def _table(head: tuple[str, ...], rows: Any) -> str:
    return speed.table(head, ([str(cell).replace("|", "\\|") for cell in row] for row in rows))


def names() -> str:
    """The page of the public names: signature and docstring; mixers have pages of their own."""
    parts = ["# Public names", "Any other name may change without notice."]
    public = [name for name in api.public() if not name.module.startswith("regard.mixers.")]
    for module, members in groupby(public, key=attrgetter("module")):
        parts.append(f"## {module}")
        for name in members:
            parts += [f"### {name.name}", _fenced("python", name.name + name.signature)]
            told = inspect.getdoc(name.value)
            if told and (inspect.isclass(name.value) or inspect.isroutine(name.value)):
                parts.append(_fenced("text", told))
            rows = [(f"`{p}`", f"`{shape}`") for p, shape in api.shapes(name.value).items()]
            if rows:
                parts.append(_table(("argument", "shape"), rows))
    return _paragraphs(*parts)


def write() -> None:
    """Writes what has changed, so that Sphinx reads only that anew."""
    FOLDER.mkdir(exist_ok=True)
    made = {name: mechanism(cls) for name, cls in regard.MIXERS.items()}
    listed = _fenced("{toctree}", ":maxdepth: 1", "", *made)
    made |= {"index": _paragraphs("# Mechanisms, one by one", listed), "names": names()}
    for name, text in made.items():
        path = FOLDER / f"{name}.md"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
