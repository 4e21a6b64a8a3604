"""The page in a browser: it draws what Python computed, answers the pointer, and runs nothing that it was given."""

import re
from dataclasses import replace

import pytest

from regard import MIXERS
from regard.lab.report import render, told
from tests.lab.experiment.tiny import CLAIM, LINE
from tests.lab.report.test_report import PARTS, rows
from tests.payloads import PAYLOADS

RAN = "Boolean(document.documentElement.dataset.ran || globalThis.ran || document.querySelector('iframe, object, base'))"
TOUCHED = "for (const e of document.querySelectorAll('td.cell, circle')) { e.dispatchEvent(new Event('focus')); e.dispatchEvent(new Event('click', {bubbles: true})); }"
CUT = """(() => {
  const page = document.documentElement, cut = [];
  if (page.scrollWidth > page.clientWidth) cut.push(`page ${page.scrollWidth} > ${page.clientWidth}`);
  for (const svg of document.querySelectorAll("svg.chart")) {
    const box = svg.getBoundingClientRect();
    for (const part of svg.querySelectorAll("text, circle")) {
      const own = part.getBoundingClientRect();
      if (own.left < box.left - 1 || own.right > box.right + 1 || own.top < box.top - 1 || own.bottom > box.bottom + 1) cut.push(part.outerHTML);
    }
  }
  return cut;
})()"""
MEET = """(() => {
  const labels = [...document.querySelectorAll("svg.chart .label")].map((e) => [e.textContent, e.getBoundingClientRect()]);
  return labels.flatMap(([name, a], i) => labels.slice(0, i).filter(([, b]) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0.5).map(([other]) => `${name} on ${other}`));
})()"""
CONTRAST = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const light = (colour, under) => {
    canvas.fillStyle = under; canvas.fillRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = getComputedStyle(document.body).backgroundColor;
  return [...document.querySelectorAll("td.cell, h1, h2, p, th, .verdict, .soft, .laws li")].map((e) => {
    const own = getComputedStyle(e), back = own.backgroundColor;
    const [a, b] = [light(own.color, ground), light(back, ground)].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), e.textContent.slice(0, 40)];
  }).filter(([ratio]) => ratio < 3.5);
})()"""


UNREAD = "NaN|Infinity|undefined"


def texts(page, selector):
    return page.locator(selector).all_text_contents()


@pytest.fixture
def opened(opened):
    return lambda given, **how: opened(render(given), **how)


@pytest.mark.parametrize("name", PARTS)
def test_whatever_there_is_is_drawn(opened, name):
    given = PARTS[name]()
    page, said = opened(given), told(given)["questions"]
    assert texts(page, "h1") == [said[0]["headline"] if said else "Nothing has been asked yet"]
    assert not re.search(UNREAD, page.inner_html("#page"))
    for cell in page.locator("td.cell[tabindex]").all():
        cell.dispatch_event("click")
        assert not re.search(UNREAD, page.inner_html(".detail"))


def test_every_number_of_the_grid_is_pythons(opened):
    given = rows("screen")
    page, (said,) = opened(given), told(given)["questions"]
    lines = "[...document.querySelectorAll('tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))"
    shown = {line[0]: line for line in page.evaluate(lines)}
    assert list(shown) == ["chance", *(row["entry"] for row in said["rows"])]
    for row in said["rows"]:
        line = shown[row["entry"]]
        assert line[2].startswith(f"{row['cells']['address']['mean']:.3f}")
        assert line[1] == ("–" if row["gain"] is None else f"{row['gain']:.2f}")
        if row["timed"]:
            speed = row["timed"]["forward 2048, unit=layer"]["tokens per second"]
            assert line[3] == f"{speed:,.0f}"
    for order in (["softmax", "local, window 4"], ["local, window 4", "softmax"]):
        page.click("thead th:nth-child(3) button")
        assert texts(page, "tbody tr:not(.line) th") == order


def test_pointing_shows_numbers_and_a_click_the_curve(opened):
    page = opened(rows("screen"))
    page.hover("svg.chart circle")
    assert texts(page, "#tip dt")[:3] == ["entry", "gain over the bag", "tokens a second"]
    page.hover("tbody tr:last-child td.cell")
    facts = texts(page, "#tip dt, #tip dd")
    assert facts[:2] == ["entry", "local, window 4"] and "seed 0" in facts[5]
    assert not page.evaluate("document.getElementById('tip').hidden")
    page.click("tbody tr:last-child td.cell")
    assert texts(page, ".detail h3") == ["local, window 4: address"]
    assert page.evaluate("document.querySelectorAll('.detail polyline').length") == 8
    page.press("td.cell[tabindex]", "Enter")
    assert texts(page, ".detail h3") == ["no mixing: address"]


def test_labels_of_the_chart_keep_apart(opened, monkeypatch):
    said = told(rows("screen"))
    (one, *_) = [row for row in said["questions"][0]["rows"] if row["timed"]]
    column = next(iter(one["timed"]))
    said["questions"][0]["rows"] = [
        one | {"entry": name, "gain": 0.9 - 0.01 * (n % 3), "timed": {column: one["timed"][column] | {"tokens per second": 1e5 * 1.05**n}}}
        for n, name in enumerate(MIXERS.names())
    ]  # fmt: skip
    monkeypatch.setattr("regard.lab.report.told", lambda rows: said)
    page = opened(rows("screen"))
    assert len(texts(page, "svg.chart .label")) == len(MIXERS.names())
    assert page.evaluate(MEET) == [] and page.evaluate(CUT) == []


def test_claims_are_listed_with_their_verdict_and_a_screen_has_none(opened):
    gone = replace(CLAIM, text="Another.", withdrawn="Unequal positions: 0.1 of 0.2.", expected=(replace(CLAIM.expected[0], column="address"),))  # fmt: skip
    mine = replace(gone, text=CLAIM.text, withdrawn="")
    page = opened(rows("comparison", ("softmax", "local, window 4"), mine, gone))
    assert texts(page, ".claims .verdict") == ["agrees", "withdrawn"]
    first, second = texts(page, ".claims li")
    assert "0.306" in first and "at 99 %, 8 seeds and 20 test items" in first
    assert "written down at" in first and "Unequal positions: 0.1 of 0.2." in second
    assert len(texts(page, ".laws li")) == 10
    page = opened(rows("screen"))
    assert texts(page, ".claims") == [] and len(texts(page, ".laws li")) == 4
    assert "says of none that it is better" in page.evaluate("document.body.textContent")


def test_several_questions_are_pages_of_one(opened):
    first, second = rows("screen"), rows()
    other = [replace(row, question="other", config=row.config | {"name": "other"}) if row.kind == "asked" else row for row in second]  # fmt: skip
    page = opened([*first, *other])
    assert len(texts(page, "#questions button")) == 2
    page.click("#questions button:last-child")
    assert len(texts(page, "h1")) == 1


@pytest.mark.parametrize("dark", [False, True])
def test_it_can_be_read_in_the_light_and_in_the_dark(opened, dark):
    for given in (rows("screen"), rows(), rows("screen", values=((0.99,) * 8, LINE, LINE, LINE))):
        assert opened(given, dark=dark).evaluate(CONTRAST) == []


@pytest.mark.parametrize("width", [1400, 390])
def test_nothing_is_cut(opened, width):
    long = ("a mechanism of a long name, with window 4 and much else besides", "softmax")
    for given in (rows(), rows("screen", long)):
        page = opened(given, width=width)
        page.click("tbody tr:last-child td.cell")
        assert page.evaluate(CUT) == []


@pytest.mark.parametrize("part", range(4))
def test_nothing_that_was_received_runs(opened, part):
    given = PAYLOADS[part::4]
    for first, second in zip(given[:12], given[12:24], strict=True):
        asked, *hostile = rows("screen", (first, second))
        claim = {"text": first, "source": second, "smallest": 0.02, "withdrawn": second, "expected": []}  # fmt: skip
        told_of = {"about": first, "limits": [second], "laws": {"4": first}, "claims": [claim]}
        where = replace(asked.provenance, commit=first, device=second)
        page = opened([replace(asked, config=asked.config | told_of, provenance=where), *hostile])
        page.evaluate(TOUCHED)
        assert not page.evaluate(RAN) and len(texts(page, "h1")) == 1
