"""Manual pages as plain text: the part of roff that man(7) and pod2man pages use, section by section.

Fonts, sizes, indents and motions are dropped; filled text becomes one line a paragraph, examples keep their lines, cells
of tables are divided by a space. Of conditions the branch for a terminal is read. What stands before .TH is definitions.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Section(NamedTuple):
    title: str
    text: str


_TOGETHER = {"BR", "BI", "IB", "IR", "RB", "RI"}  # arguments without spaces between
_APART = {"B", "I", "SM", "SB"}
_VERBATIM = {"nf": True, "EX": True, "Vb": True, "fi": False, "EE": False, "Ve": False}
_BREAKS = {"PP", "LP", "P", "TP", "TQ", "IP", "HP", "RS", "RE", "sp", "Sp", "br", "in", "SY", "YS"}
_WITH_TEXT = {"IP", "HP", "UR", "MT"}  # their first argument is shown

_CHARACTERS = {
    "aq": "'",
    "dq": '"',
    "cq": "'",
    "oq": "'",
    "lq": '"',
    "rq": '"',
    "ga": "`",
    "ti": "~",
    "ha": "^",
    "rs": "\\",
    "bu": "*",
    "em": "--",
    "en": "-",
    "hy": "-",
    "mi": "-",
    "la": "<",
    "ra": ">",
    "<=": "<=",
    ">=": ">=",
    "!=": "!=",
    "+-": "+-",
    "co": "(c)",
    "ba": "|",
    "sl": "/",
    "at": "@",
    "sh": "#",
    "Do": "$",
    "mu": "x",
    "->": "->",
    "<-": "<-",
    "de": "degrees",
}
_STRINGS = {'L"': '"', 'R"': '"', "C`": "", "C'": "", "Aq": "'", "--": "--", "lq": '"', "rq": '"'}
_ESCAPE = re.compile(
    r"""\\(?:
      (?P<comment>["\#].*)
    | f(?:\(..|\[[^\]]*\]|.)                     # font
    | s(?:\((?:..)|'[^']*'|[+-]?\d{1,2})         # size
    | [hvwoDlLbxZNA]'[^']*'                      # motions, widths, drawings
    | n(?:\(..|\[[^\]]*\]|[+-]?.)                # registers
    | \*(?:\((?P<two>..)|\[(?P<long>[^\]]*)\]|(?P<one>.))
    | \((?P<special>..)
    | \[(?P<named>[^\]]*)\]
    | (?P<plain>.)
    | $)""",
    re.VERBOSE,
)
_PLAIN = {
    "-": "-",
    "e": "\\",
    "\\": "\\",
    "~": " ",
    "0": " ",
    " ": " ",
    "t": "\t",
    "'": "'",
    "`": "`",
    ".": ".",
}
_ARGUMENT = re.compile(r'"((?:[^"]|"")*)"?|((?:\\.|[^\s"\\])(?:\\.|[^\s\\])*)')


def read_roff(source: str) -> list[Section]:
    """Sections in order; text before the first heading is under ""."""
    return _Reader().read(source)


class _Reader:
    """Where in the page we are; used once."""

    def __init__(self) -> None:
        self._sections: list[tuple[str, list[str]]] = [("", [])]
        self._paragraph: list[str] = []
        self._verbatim = False

    def read(self, source: str) -> list[Section]:
        lines = iter(_body(source))
        for line in lines:
            if line[:1] in (".", "'"):
                self._request(line[1:].lstrip(), lines)
            else:
                self._text(line)
        self._end_paragraph()
        return [Section(title, "\n".join(text)) for title, text in self._sections if title or text]

    def _request(self, line: str, lines: Iterator[str]) -> None:
        name, _, rest = line.partition(" ")
        if name in ("ie", "if"):
            condition, _, then = rest.strip().partition(" ")
            if condition == "n" and then[:1] in (".", "'"):
                self._request(then[1:].lstrip(), lines)
            elif "\\{" in line:
                _skip(lines, lambda inner: "\\}" in inner)
        elif name == "el" and "\\{" in line:
            _skip(lines, lambda inner: "\\}" in inner)
        elif name in ("de", "ig"):
            _skip(lines, lambda inner: inner.strip() == "..")
        elif name == "TS":
            self._end_paragraph()
            for row in _table(lines):
                self._add(row)
        elif name in ("SH", "SS"):
            self._heading(name, " ".join(_arguments(rest)) or _plain(next(lines, "")))
        elif name in _TOGETHER | _APART:
            arguments = _arguments(rest)
            if not arguments:
                arguments = [_plain(next(lines, ""))]
            self._text(("" if name in _TOGETHER else " ").join(arguments), plain=True)
        elif name in _VERBATIM or name in _BREAKS or name in _WITH_TEXT:
            self._end_paragraph()
            self._verbatim = _VERBATIM.get(name, self._verbatim)
            if name in _WITH_TEXT and (arguments := _arguments(rest)):
                self._text(arguments[0], plain=True)

    def _heading(self, name: str, title: str) -> None:
        self._end_paragraph()
        self._verbatim = False
        if name == "SH":
            self._sections.append((title, []))
        else:
            self._add(title)

    def _text(self, line: str, *, plain: bool = False) -> None:
        text = line if plain else _plain(line)
        if self._verbatim:
            self._add(text.rstrip())
        elif text.strip():
            self._paragraph.append(text.strip())
        elif not plain:
            self._end_paragraph()

    def _end_paragraph(self) -> None:
        if self._paragraph:
            self._add(" ".join(" ".join(self._paragraph).split()))
            self._paragraph = []

    def _add(self, line: str) -> None:
        if line.strip():
            self._sections[-1][1].append(line)


def _body(source: str) -> list[str]:
    """The lines from .TH on; a line that ends in a lone backslash goes on in the next."""
    lines = source.replace("\\\n", "").split("\n")
    starts = [number for number, line in enumerate(lines) if line.startswith(".TH")]
    return lines[starts[0] + 1 :] if starts else []


def _skip(lines: Iterator[str], ends: Callable[[str], bool]) -> None:
    for line in lines:
        if ends(line):
            return


def _table(lines: Iterator[str]) -> list[str]:
    """Rows of tbl(1): options and formats are dropped, cells joined by spaces."""
    rows: list[str] = []
    divider, in_format, block = "\t", True, False
    for line in lines:
        if line.startswith(".TE"):
            break
        if in_format:
            option = re.search(r"tab\s*\((.)\)", line)
            divider = option.group(1) if option else divider
            in_format = not line.rstrip().endswith(".")
        elif line.startswith(".T&"):
            in_format = True
        elif line[:1] in (".", "'"):
            words = _arguments(line[1:].partition(" ")[2])
            if words and rows and block:
                rows[-1] += " " + "".join(words)
        elif set(line.strip()) <= set("_="):
            continue
        else:
            cells = _plain(line.replace(divider, " ").replace("T{", "").replace("T}", ""))
            text = " ".join(cells.split())
            if block and rows:
                rows[-1] = f"{rows[-1]} {text}".strip()
            else:
                rows.append(text)
            block = "T{" in line or (block and "T}" not in line)
    return rows


def _arguments(rest: str) -> list[str]:
    found = _ARGUMENT.findall(_uncommented(rest))
    return [_plain(quoted.replace('""', '"') if quoted else bare) for quoted, bare in found]


def _uncommented(text: str) -> str:
    return re.sub(r'(?<!\\)\\".*', "", text)


def _plain(text: str) -> str:
    return _ESCAPE.sub(_shown, text)


def _shown(escape: re.Match) -> str:
    string = escape["two"] or escape["long"] or escape["one"]
    if string is not None:
        return _STRINGS.get(string, "")
    named = escape["special"] or escape["named"]
    if named is not None:
        return _CHARACTERS.get(named) or _by_code(named)
    return _PLAIN.get(escape["plain"] or "", "")


def _by_code(name: str) -> str:
    """u00E9 -> é; other names that we do not know are dropped."""
    codes = re.fullmatch(r"u([0-9A-F]{4,6})", name)
    return chr(int(codes.group(1), 16)) if codes else ""
