"""The report says what the rows say: in a terminal, as data, as a document and a picture, and on a page of one file."""

import io
import json
import re
from dataclasses import replace
from functools import cache
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import pytest
from rich.console import Console

from regard.core import OptionError, UnknownNameError, visible
from regard.lab import Entry, Setting, above
from regard.lab.experiment.laws import ExperimentError
from regard.lab.experiment.ledger import Ledger
from regard.lab.experiment.results import MEASURED
from regard.lab.experiment.row import Row
from regard.lab.report import document, picture, read_rows, render, terminal, told, write_page
from regard.lab.report.pictures import Bubble, place_labels
from regard.lab.report.terminal import _marked, claim_lines
from tests.lab.experiment.tiny import CLAIM, FAIR, GOOD, LINE, LOCAL, TINY, asked, made_up
from tests.payloads import PAYLOADS

TIME = Setting(kind="forward", length=2048, dim=64)
NAMES = ("softmax", "local, window 4", "no mixing", "the bag")


@cache
def record(kind="comparison", names=NAMES[:2], *claims) -> Row:
    """What was asked, with labels of one's own."""
    entries = (Entry(mixer="softmax", title=names[0]), replace(LOCAL, title=names[1]))
    bound = replace(CLAIM, expected=(above(*names, column="address"),))
    question = replace(
        TINY, kind=kind, entries=entries, vary=(*TINY.vary, TIME), baseline=names[0],
        claims=(claims or (bound,)) if kind == "comparison" else (), shells=TINY.shells if kind == "comparison" else (),
    )  # fmt: skip
    with TemporaryDirectory() as folder, Ledger(Path(folder, "l.sqlite")) as ledger:
        return asked(question, ledger, Path(folder))


def rows(kind="comparison", names=NAMES[:2], *claims, values=(GOOD, FAIR, LINE, LINE)) -> list[Row]:
    first = record(kind, names, *claims)
    made = [first]
    for name, given in zip((*names, *NAMES[2:]), values, strict=True):
        made += made_up(first, name, given, parameters=4000)
    cells = {label: cell for label, name, cell, *_ in first.config["cells"] if name == TIME.name}
    for place, name in enumerate(names):
        figures = {"ms": 2.0 + place, "low_ms": 1.9, "high_ms": 3.1, "baseline_ms": 2.0, "rounds": 5, "peak_bytes": 9e6 / (1 + place)}  # fmt: skip
        setting = {"kind": "forward", "length": 2048, "batch": 1, "dim": 64, "num_heads": 4, "unit": "layer", "impl": "plain"}  # fmt: skip
        made.append(replace(made[1], kind="timed", entry=name, column=TIME.name, cell=cells[name], values=figures, setting=setting, scores=[], curve=[]))  # fmt: skip
    return made


def text_of(given) -> str:
    out = io.StringIO()
    Console(width=160, file=out).print(terminal(given))
    return out.getvalue()


def only(*kinds):
    return [row for row in rows() if row.kind in ("asked", *kinds)]


PARTS = {
    "nothing": lambda: [],
    "asked alone": lambda: only(),
    "trained alone": lambda: only("trained"),
    "timed alone": lambda: only("timed"),
    "all": rows,
    "a screen": lambda: rows("screen"),
    "no curves": lambda: [replace(row, curve=[]) for row in rows()],
    "no memory": lambda: [replace(row, values=row.values | {"peak_bytes": 0}) if row.kind == "timed" else row for row in rows()],
    "slower than a token a second": lambda: [replace(row, values=row.values | {"ms": 1e8}) if row.kind == "timed" else row for row in rows()],
    "zeros": lambda: rows(values=((0.0,) * 8,) * 4),
    "ones": lambda: rows(values=((1.0,) * 8,) * 4),
    "no lines": lambda: [row for row in rows() if row.entry not in NAMES[2:]],
    "one seed": lambda: [row for row in rows() if row.seed == 0],
    "own names": lambda: rows("screen", ("<b>mine</b>", "[bold]x[/]")),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_whatever_there_is_there_is_a_table_a_page_a_document_and_data(name, tmp_path):
    given = PARTS[name]()
    page = render(given)
    assert "<b>mine</b>" not in page and text_of(given).strip()
    held = re.search(r'<script type="application/json" id="told">(.*?)</script>', page, re.S)
    said = json.loads(held.group(1))
    assert said == json.loads(json.dumps(told(given), allow_nan=False))
    if not given:
        with pytest.raises(OptionError, match="nothing to write"):
            document(given, tmp_path / "d.md")
        return
    lines = document(given, tmp_path / "d.md").read_text().splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len({line.count(" | ") for line in table}) == 1 and lines[0] == f"# {said['questions'][0]['name']}"  # fmt: skip
    assert "<b>" not in "\n".join(lines)


def test_the_table_says_verdict_numbers_and_what_is_missing():
    text = text_of(rows())
    assert "1 of 1 claims: agrees" in text
    assert "agrees: Full attention goes further than a window. (nobody; written down at" in text
    assert "softmax less local, window 4 in address: 0.306 (" in text and "8 seeds and 20 test items" in text  # fmt: skip
    assert "address: softmax, local, window 4 not run yet" in text_of(only())
    screen = text_of(rows("screen"))
    assert "A screen: each entry by itself" in screen and "agrees" not in screen


def test_numbers_that_do_not_pass_the_lines_are_in_brackets():
    cells = [_marked((text, "not reached")) for text in ("0.5", "-0.5", "-")]
    assert cells == ["[0.5]", "[-0.5]", "-"]


def test_a_claim_is_of_a_trained_column():
    with pytest.raises(UnknownNameError, match="unknown trained column of tiny 'forward 2048"):
        record("comparison", NAMES[:2], replace(CLAIM, expected=(above(*NAMES[:2], column=TIME.name),)))  # fmt: skip


def test_a_measurement_of_recommend_is_never_the_newest_question(tmp_path):
    first, *made = rows()
    later = replace(first.provenance, started="2099-01-01T00:00:00+00:00")
    config = first.config | {"name": MEASURED}
    given = [first, *made, replace(first, question=MEASURED, config=config, provenance=later)]
    assert [one["name"] for one in told(given)["questions"]] == ["tiny", MEASURED]
    written = document(given, tmp_path / "d.md", tmp_path / "drawn" / "d.svg").read_text()
    assert written.startswith("# tiny\n") and "](drawn/d.svg)" in written


@pytest.mark.parametrize("where", ["unknown", "0123456789ab+changes"])
@pytest.mark.parametrize("place", [0, 1, -1], ids=["asked", "trained", "timed"])
def test_a_document_of_what_no_commit_holds_is_refused(tmp_path, where, place):
    given = rows("screen")
    given[place] = replace(given[place], provenance=replace(given[place].provenance, commit=where))
    with pytest.raises(ExperimentError, match=rf"breaks law 9 .*: 1 of .* {re.escape(where)}"):
        document(given, tmp_path / "d.md")
    assert not (tmp_path / "d.md").exists()


def test_grey_is_what_does_not_pass_the_lines():
    given = rows("screen", values=(GOOD, LINE, LINE, LINE))
    first, second = [row["cells"]["address"] for row in told(given)["questions"][0]["rows"] if not row["line"]]  # fmt: skip
    assert (first["mark"], second["mark"]) == ("reached", "not reached")
    assert all(row["source"] for row in told(given)["questions"][0]["rows"]), "of the lines too"
    assert (first["chance"], first["unmixed"], first["bag"]) == (0.1, 0.15, 0.15)
    assert told(given)["questions"][0]["headline"] == "Reached within the steps given: address 1 of 2"  # fmt: skip


def test_the_page_refers_to_nothing_outside():
    page = render(rows())
    tags = re.sub(r"<script[^>]*>.*?</script>", "", page, flags=re.S)
    assert not re.search(r"https?://", tags) and not re.search(r"<[^>]+\s(?:src|href)\s*=", tags)
    assert "default-src 'none'" in unescape(tags) and "unsafe" not in unescape(tags)


def test_a_picture_is_written_and_other_endings_are_refused(tmp_path):
    assert picture(rows(), tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "softmax" in picture(rows("screen"), tmp_path / "a.svg").read_text()
    with pytest.raises(OptionError, match=r"must end in \.png or \.svg"):
        picture(rows(), tmp_path / "a.gif")
    for given in ([], only("timed")):
        with pytest.raises(OptionError, match="nothing to draw"):
            picture(given, tmp_path / "b.png")
    for name in ("no memory", "slower than a token a second", "ones", "zeros", "no lines"):
        picture(PARTS[name](), tmp_path / "c.svg")


def test_names_are_shown_and_speak_to_no_terminal_and_no_picture(tmp_path):
    for place, pair in enumerate(zip(PAYLOADS[::20], PAYLOADS[7::20], strict=True)):
        given = rows("comparison", pair)
        assert all(c.isprintable() for c in text_of(given).replace("\n", ""))
        if place % 2 == 0:
            drawn = picture(given, tmp_path / "a.svg").read_text()
            texts = {part.text for part in ElementTree.fromstring(drawn).iter() if part.text}
            assert {visible(name) for name in pair} <= texts


def test_labels_keep_out_of_each_others_way():
    places = place_labels([Bubble(150, 150, 10, "synthesizer_dense")] * 6, 330, 300)
    assert all(abs(a[0] - b[0]) > 100 or abs(a[1] - b[1]) >= 10 for i, a in enumerate(places) for b in places[:i])  # fmt: skip


def test_the_page_is_written_whole_and_rows_are_a_ledgers(tmp_path):
    path = write_page([], tmp_path / "new" / "report.html")
    assert [one.name for one in path.parent.iterdir()] == ["report.html"]
    with Ledger(tmp_path / "l.sqlite") as ledger:
        ledger.put("k" * 64, rows()[0])
    assert read_rows(tmp_path / "l.sqlite") == rows()[:1]


def test_a_bound_on_a_measure_names_it():
    bound = {"of": "softmax", "beside": None, "column": "reach", "interval": None, "reason": ""}
    claim = dict.fromkeys(("text", "source", "stated commit"), "x")
    claim |= {"verdict": "cannot tell", "withdrawn": "", "needs": None}
    for measure, named in (("distance 11", "reach, distance 11"), (None, "reach")):
        line = claim_lines(claim | {"bounds": [bound | {"measure": measure}]})[1]
        assert line.strip() == f"softmax in {named}: not run"
