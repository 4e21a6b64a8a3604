"""The report says what the ledger says, in a terminal, as data, and on a page that a browser draws without a network."""

import io
import re
from dataclasses import replace
from functools import cache
from html import unescape
from xml.etree import ElementTree

import pytest
from rich.console import Console

from regard.core import OptionError, StoredDataError
from regard.core.errors import visible
from regard.lab.arena.report import picture, plain, read_rows, terminal, write_page
from regard.lab.arena.report.crossing import crossing
from regard.lab.arena.report.layout import Bubble, place_labels, spread_out
from regard.lab.arena.report.page import render
from regard.lab.arena.report.summary import LedgerSummary
from regard.lab.arena.results import NotRun, Timed, Trained
from regard.lab.arena.rows import inside, unpacked
from tests.lab.arena.made_up import WHERE, rows
from tests.payloads import PAYLOADS


def text_of(renderable) -> str:
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(renderable)
    return console.export_text()


def only(kind):
    return [row for row in rows() if isinstance(row, kind)]


PARTS = {
    "empty": [],
    "trained alone": only(Trained),
    "timed alone": only(Timed),
    "not run alone": only(NotRun),
    "one training": only(Trained)[:1],
    "one timing": only(Timed)[:1],
    "one of each": only(Trained)[:1] + only(Timed)[:1],
    "no softmax": [row for row in rows() if row.mixer != "softmax"],
    "decode alone": [row for row in only(Timed) if row.kind == "decode"] + only(Trained),
    "no curves": [replace(row, curve=[]) for row in only(Trained)],
    "no memory": [replace(row, peak_bytes=0) for row in only(Timed)] + only(Trained),
    "zero quality": [replace(row, value=0.0, curve=[(1, 0.0)]) for row in only(Trained)]
    + only(Timed),
    "all": rows(),
    "own mixer": [replace(row, mixer="<b>mine</b>") for row in rows()],
    "several seeds": rows(seeds=(0, 1, 2)),
}


@cache
def page_of(name: str) -> str:
    return render(PARTS[name])


@pytest.mark.parametrize("name", PARTS)
def test_whatever_is_in_the_ledger_there_is_a_table_a_page_and_data(name):
    given = PARTS[name]
    page = page_of(name)
    assert unpacked(inside(page)) == given
    assert "<b>mine</b>" not in page
    assert text_of(terminal(given)).strip()
    said = plain(given)
    assert said["headline"]
    if not any(isinstance(row, Timed) for row in given) or not any(
        isinstance(row, Trained) for row in given
    ):
        assert said["notes"], "what is missing is named"


def test_the_choice_is_the_fastest_of_those_as_good_as_the_best():
    decision = LedgerSummary(rows()).decide("digits", "forward", 4096)
    assert (decision.choice, decision.best.mechanism) == ("fnet", "gau")
    assert LedgerSummary(rows()).decide("listops", "forward", 4096).choice == "softmax", (
        "local and linear lose too much"
    )


def test_softmax_is_the_choice_where_nothing_is_measurably_faster():
    slow = [
        replace(r, median_ms=r.baseline_ms * 0.9, high_ms=r.baseline_ms * 1.1)
        if isinstance(r, Timed)
        else r
        for r in rows()
    ]
    assert LedgerSummary(slow).decide("digits", "forward", 4096).choice == "softmax"


def test_seeds_that_disagree_widen_what_counts_as_good():
    wide = [
        replace(row, value=row.value + (0.06 if row.seed else -0.06))
        if isinstance(row, Trained) and row.mixer == "linear" and row.task == "listops"
        else row
        for row in rows(seeds=(0, 1))
    ]
    assert LedgerSummary(wide).decide("listops", "forward", 4096).choice == "linear"


def test_the_interval_is_students():
    """By hand: 0.1, 0.2, 0.3 have the deviation 0.1, and t is 4.303 for two degrees of freedom."""
    (run,) = only(Trained)[:1]
    made = [replace(run, seed=seed, value=0.1 + 0.1 * seed) for seed in range(3)]
    (quality,) = LedgerSummary(made).quality.values()
    assert quality.spread == pytest.approx(4.303 * 0.1 / 3**0.5, rel=1e-3)


def test_the_rate_is_chosen_on_validation_and_not_on_the_test():
    (run,) = only(Trained)[:1]
    tried = [
        replace(run, rate=rate, valid_value=valid, value=value)
        for rate, valid, value in ((1e-3, 0.5, 0.9), (1e-2, 0.6, 0.4), (1e-1, 0.2, 0.95))
    ]
    more = [replace(tried[1], seed=1, valid_value=0.1, value=0.5)]
    (quality,) = LedgerSummary(tried + more).quality.values()
    assert [(row.rate, row.value) for row in quality.runs] == [(1e-2, 0.4), (1e-2, 0.5)]


def test_one_seed_is_said():
    assert "one seed" in page_of("all")
    assert "one seed" not in page_of("several seeds")


@pytest.mark.parametrize(
    "points, said",
    [
        ([(256, 2.0), (1024, 0.5)], "about 510"),
        ([(256, 0.9), (1024, 0.5)], "at every length from 256"),
        ([(256, 2.0), (4096, 1.2)], "not up to 4,096"),
        ([(256, 0.5), (1024, 2.0), (4096, 0.5)], "about 2,000"),
        ([(256, 2.0), (4096, 0.98)], "about level at 4,096"),
    ],
)
def test_where_a_mechanism_overtakes(points, said):
    assert str(crossing(points)) == said


def test_an_overtaking_has_bounds():
    made = [
        replace(r, low_ms=r.median_ms * 0.8, high_ms=r.median_ms * scale)
        for r in only(Timed)
        if r.mixer == "local"
        for scale in [1.3 if r.length < 4096 else 4.0]
    ]
    assert (
        str(LedgerSummary(made).overtaking("local", "forward")) == "about 560 (380 to over 4,096)"
    )


def test_timings_of_another_machine_are_left_out_and_named():
    other = replace(WHERE, device="another")
    mixed = rows() + [replace(r, provenance=other, median_ms=1e-6) for r in only(Timed)[:4]]
    assert plain(mixed)["mechanisms"] == plain(rows())["mechanisms"]
    assert any("another" in note for note in plain(mixed)["notes"])


def test_results_on_other_data_are_not_set_beside_these():
    mixed = [*rows(), replace(only(Trained)[0], data_sha256="f" * 64, seed=7, value=0.99)]
    assert plain(mixed)["mechanisms"] == plain(rows())["mechanisms"]
    assert any("other data" in note for note in plain(mixed)["notes"])


def test_a_mixer_with_two_option_sets_is_two_mechanisms():
    second = [
        replace(r, options={"window_size": 8})
        for r in rows()
        if r.mixer == "local" and isinstance(r, Timed | Trained)
    ]
    labels = {line["mechanism"] for line in plain(rows() + second)["mechanisms"]}
    assert {"local (window_size=8)", "local (window_size=64)"} <= labels


def test_absent_pairs_carry_their_reason():
    reason = "the transform mixes every token with <future> ones"
    assert reason in text_of(terminal(rows()))
    assert reason not in page_of("all"), "a page holds it as escaped JSON"


def test_the_page_refers_to_nothing_outside():
    page = page_of("all")
    tags = re.sub(r"<script[^>]*>.*?</script>", "", page, flags=re.S)
    assert not re.search(r"https?://", tags)
    assert not re.search(r"<[^>]+\s(?:src|href)\s*=", tags)
    assert "default-src 'none'" in unescape(tags)


def test_a_picture_is_written_and_other_endings_are_refused(tmp_path):
    assert picture(rows(), tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "synthesizer_dense" in picture(rows(), tmp_path / "a.svg").read_text()
    with pytest.raises(OptionError, match=r"must end in \.png or \.svg"):
        picture(rows(), tmp_path / "a.gif")
    with pytest.raises(OptionError, match="nothing to draw"):
        picture([], tmp_path / "b.png")


def test_a_picture_shows_names_and_obeys_none(tmp_path):
    names = iter(PAYLOADS[::10])
    forged = {mixer: next(names) for mixer in ("local", "linear", "gau", "fnet")}
    tasks = {task: next(names) for task in ("digits", "listops", "stdlib_bytes")}
    made = [
        replace(row, mixer=forged.get(row.mixer, row.mixer), **given)
        for row in rows()
        for given in [
            {"task": tasks[row.task], "metric": next(iter(PAYLOADS[149:]))}
            if isinstance(row, Trained)
            else {}
        ]
    ]
    drawn = picture(made, tmp_path / "a.svg").read_text()
    texts = {part.text for part in ElementTree.fromstring(drawn).iter() if part.text}
    assert {visible(name) for name in forged.values()} <= texts
    assert {visible(task) for task in tasks.values()} <= texts


def test_the_first_length_shown_is_where_quality_was_measured():
    def at(length):
        made = [replace(r, length=length) if isinstance(r, Trained) else r for r in rows()]
        return LedgerSummary(made).usual_length("forward")

    assert [at(n) for n in (None, 129, 256, 300, 9999)] == [4096, 256, 256, 512, 4096]


def test_labels_keep_out_of_each_others_way():
    same = [Bubble(150, 150, 10, "synthesizer_dense")] * 6
    places = place_labels(same, 330, 300)
    assert all(
        abs(a.x - b.x) > 100 or abs(a.y - b.y) >= 10
        for i, a in enumerate(places)
        for b in places[:i]
    )
    assert spread_out([5, 5, 5], 0, 100, gap=10) == [5, 15, 25]


def test_the_page_is_written_whole(tmp_path):
    assert read_rows(write_page([], tmp_path / "new" / "report.html")) == []
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["report.html"]


def test_a_page_or_its_json_is_drawn_again(tmp_path):
    page = write_page(rows(), tmp_path / "report.html")
    saved = tmp_path / "results.json"
    saved.write_text(inside(page.read_text()))
    assert read_rows(page) == read_rows(saved) == rows()
    assert write_page(read_rows(saved), tmp_path / "again.html").read_bytes() == page.read_bytes()


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.json", b""),
        ("a.json", b"\xff\xfe"),
        ("a.json", b"[" * 100_000),
        ("a.json", b"{}"),
        ("a.html", b"<p>no results</p>"),
        ("a.html", b'<script id="results">{"format":1,"rows":[["timed",1]]}</script>'),
    ],
)
def test_a_file_without_results_is_named(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(StoredDataError, match=f"{name} cannot be read: "):
        read_rows(path)
