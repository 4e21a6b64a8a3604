"""Rows are read as typed fields or refused, and nothing in them speaks to a terminal."""

import io
import itertools
import json
import unicodedata

import pytest
from rich.console import Console
from rich.progress import Progress

from regard.cli import main
from regard.core import StoredDataError
from regard.core.errors import visible
from regard.lab.arena.ledger import Ledger, canonical
from regard.lab.arena.report import terminal
from regard.lab.arena.results import Trained
from regard.lab.arena.rows import SCHEMA, packed, read_row, unpacked
from regard.lab.arena.run import _display
from regard.lab.arena.suite import QUICK
from tests.lab.arena.forged import KINDS, one_of_each, write
from tests.lab.arena.made_up import rows
from tests.payloads import PAYLOADS

GOOD = one_of_each()
NEVER = [
    None,
    [],
    {},
    [[1]],
    {"a": {"b": "\ud800"}},
    "\udc80",
    "x" * 20_001,
    -1,
    10**30,
    1e300,
    True,
]
"""Values of which most are wrong for any one field."""


def fields():
    for kind in KINDS:
        for name in SCHEMA[kind]:
            if name != "provenance":
                yield kind, (name,)
        if "provenance" in SCHEMA[kind]:
            yield from ((kind, ("provenance", name)) for name in SCHEMA["origin"])


def changed(kind, path, value):
    row = json.loads(json.dumps(GOOD[kind]))
    inside = row[path[0]] if len(path) == 2 else row
    inside[path[-1]] = value
    return row


def field(kind, path):
    return SCHEMA["origin" if len(path) == 2 else kind][path[-1]]


@pytest.mark.parametrize("kind, path", list(fields()), ids=str)
def test_a_field_of_the_wrong_type_is_refused_by_name(tmp_path, kind, path):
    known = field(kind, path)
    wrong = list(NEVER) if known.type != "text" else [None, 1, 1.5, True, [], {}, "\ud800"]
    if known.type in ("whole", "number", "flag", "word", "options", "texts", "curve"):
        wrong += PAYLOADS
    refused = 0
    for value in wrong:
        text = json.dumps(changed(kind, path, value))
        try:
            row = read_row(kind, json.loads(text))
        except ValueError as error:
            assert path[-1] in str(error)
            refused += 1
        else:
            assert json.loads(canonical(row)) == json.loads(text), "what is read is what was there"
    assert refused >= (5 if known.type == "text" else 205)
    if known.type != "text":
        forged = write(
            tmp_path / "l.sqlite", [(kind, json.dumps(changed(kind, path, PAYLOADS[0])))]
        )
        with pytest.raises(StoredDataError, match=path[-1]):
            Ledger(forged).results()


@pytest.mark.parametrize(
    "kind, text",
    [
        ("trained", "[" * 100_000),
        ("trained", "null"),
        ("trained", "{}"),
        ("trained", json.dumps(GOOD["trained"] | {"\x1b[2J": 1})),
        ("trained", json.dumps(GOOD["trained"] | {"provenance": "x"})),
        ("trained", canonical(GOOD["trained"]).replace('"seed":0', '"seed":NaN')),
        ("trained", canonical(GOOD["trained"]).replace('"seed":0', '"seed":' + "1" * 5000)),
        ("timed", json.dumps(GOOD["timed"] | {"baseline_ms": 0})),
        ("\x1b[2Jstrange", json.dumps(GOOD["timed"])),
    ],
)
def test_a_row_that_is_none_is_refused_in_one_visible_line(tmp_path, capsys, kind, text):
    forged = write(tmp_path / "l.sqlite", [(kind, text)])
    assert main(["report", "--ledger", str(forged), "--page", str(tmp_path / "r.html")]) == 2
    said = capsys.readouterr().err
    assert "l.sqlite" in said and said.count("\n") == 1 and said[:-1].isprintable()


def test_what_could_not_be_read_again_is_not_kept(tmp_path):
    with Ledger(tmp_path / "l.sqlite") as ledger:
        with pytest.raises(ValueError, match="seed must be a whole number"):
            ledger.put("k", Trained(**{**vars(rows()[1]), "seed": "0"}))
        assert ledger.results() == []


def test_packed_rows_come_back_equal():
    given = rows(seeds=(0, 1))
    text = json.dumps(packed(given))
    assert unpacked(text) == given
    assert len(text) < 0.6 * len(json.dumps([json.loads(canonical(row)) for row in given]))


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "[]",
        "[" * 100_000,
        '{"format":2}',
        '{"format":1,"rows":7}',
        '{"format":1,"rows":[[]]}',
        '{"format":1,"rows":[[{}]]}',
        '{"format":1,"rows":[["trained",1]]}',
        '{"format":1,"rows":[["trained",1]],"fields":{"trained":["task"]}}',
        '{"format":1,"rows":[["timed",[9,""]]],"fields":{"timed":["provenance"]},"origins":[]}',
    ],
)
def test_packed_rows_that_are_none_are_refused(broken):
    with pytest.raises(ValueError):
        unpacked(broken)


def poisoned():
    """Every text of every row replaced, so that each of the payloads is in each of the fields."""
    turn = itertools.count()
    for number in range(len(PAYLOADS)):
        for kind, good in GOOD.items():
            row = json.loads(json.dumps(good))
            for name, known in [*SCHEMA[kind].items(), *SCHEMA["origin"].items()]:
                inside = row if name in SCHEMA[kind] else row.get("provenance", {})
                payload = PAYLOADS[(number + 7 * next(turn)) % len(PAYLOADS)]
                if known.type == "text" and name != "started":
                    inside[name] = payload
                elif known.type in ("options", "texts"):
                    inside[name] = {payload: payload}
            yield read_row(kind, row)


@pytest.mark.parametrize("payload", PAYLOADS[::3])
def test_no_line_of_a_run_speaks_to_the_terminal(payload):
    out = io.StringIO()
    with _display(Progress(console=Console(file=out, width=500)), QUICK) as display:
        with display.doing(payload):
            display.say(payload)
    assert visible(payload) in out.getvalue().replace("\n", "")
    assert all(c.isprintable() for c in out.getvalue().replace("\n", ""))


def test_no_row_speaks_to_the_terminal():
    given = list(poisoned())
    out = io.StringIO()
    Console(file=out, width=400, force_terminal=False).print(terminal(given))
    letters = set(out.getvalue()) - {"\n"}
    assert not [c for c in letters if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    assert "[bold red link=javascript:" in out.getvalue(), "markup is shown and not obeyed"
