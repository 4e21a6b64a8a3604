"""Tables and data on the standard output."""

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.core import visible_lines

LONGEST_NAME = 40  # characters of a first column that is kept whole in a narrow terminal
Row = Mapping[str, Any]
WIDE = 240  # columns of a table that goes to a file or a pipe, where nothing needs to be folded


def console() -> Console:
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else WIDE, highlight=False)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, default=str))


def print_table(rows: Iterable[Row], *, title: str | None = None) -> None:
    """One line for each row; the columns are the first row's keys."""
    rows = list(rows)
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(rows[0] if rows else ()):
        is_name = place == 0 and all(len(_cell(row[name])) <= LONGEST_NAME for row in rows)
        table.add_column(name.replace("_", " "), overflow="fold", no_wrap=is_name)
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row.values()))
    console().print(table)


def print_facts(facts: Row, head: str = "what") -> None:
    print_table({head: name, "value": value} for name, value in facts.items())


def print_details(about: Row) -> None:
    """Text first, then the facts, then the options."""
    out = console()
    out.print(Text(f"{about['name']} ({about['kind']})", style="bold"))
    out.print(Text(f"\n{about['text']}\n"))
    facts = {name: value for name, value in about.items() if name not in _APART}
    facts |= {f"cost: {name}": value for name, value in about.get("cost", {}).items()}
    facts |= about.get("capabilities", {})
    if facts:
        print_facts(facts, "fact")
    if about["options"]:
        print_table(map(_option_row, about["options"]))


def _option_row(option: Row) -> dict[str, Any]:
    default = "(needed)" if option.get("required") else option["default"]
    row = {"option": option["name"], "default": default}
    if "meaning" not in option:
        return row
    stack = " (a model gives it)" * option["given_by_the_stack"]
    return row | {"values": option["values"], "meaning": option["meaning"] + stack}


_APART = {"name", "kind", "text", "options", "capabilities", "cost"}


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_cell(item)}" for name, item in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        cells = list(map(_cell, value))
        return ("; " if any("," in cell for cell in cells) else ", ").join(cells)
    return "none" if value is None else visible_lines(str(value))
