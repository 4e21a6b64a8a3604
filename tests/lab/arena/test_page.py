"""The page in a browser: it says what Python says, follows every choice, and runs nothing that it was given."""

import csv
import io
import json
import random
import re
from dataclasses import replace

import pytest

from regard.lab.arena.recommend import crossover
from regard.lab.arena.report import plain, words
from regard.lab.arena.report.page import render
from regard.lab.arena.report.summary import LedgerSummary
from regard.lab.arena.report.table import crossings
from regard.lab.arena.results import NotRun, Timed, Trained
from regard.lab.arena.rows import SCHEMA, inside, unpacked
from regard.mixers import MIXERS
from tests.browser import CHROMIUM
from tests.lab.arena.made_up import LENGTHS, SPEED, WHERE, rows, timed, trained
from tests.payloads import PAYLOADS

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="needs chromium on the PATH to draw the page"
)
SEEDS = rows(seeds=(0, 1, 2))
LENGTHS_SAID = [replace(row, length=200) if isinstance(row, Trained) else row for row in SEEDS]


@pytest.fixture
def opened(browser, tmp_path):
    """Draws the page of these rows; afterwards nothing may have been complained about."""

    def open_page(given, **how):
        path = tmp_path / "report.html"
        path.write_text(render(given), encoding="utf-8")
        return browser.open(path, **how)

    yield open_page
    assert browser.complaints == []


def texts(browser, selector):
    return browser.run(
        f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)"
    )


def charts(browser):
    return browser.run("document.querySelectorAll('svg.chart').length")


def only(*kinds):
    return [row for row in SEEDS if isinstance(row, kinds)]


@pytest.mark.parametrize(
    "given, drawn",
    [
        ("all", 8),  # three tasks, time and memory, three trainings
        ("timed alone", 2),
        ("trained alone", 3),
        ("not run alone", 0),
        ("nothing", 0),
        ("one of each", 4),
        ("zeros", 7),
    ],
)
def test_whatever_there_is_is_drawn(opened, given, drawn):
    parts = {
        "all": SEEDS,
        "timed alone": only(Timed),
        "trained alone": only(Trained),
        "not run alone": only(NotRun),
        "nothing": [],
        "one of each": only(Trained)[:1] + only(Timed)[:1],
        "zeros": [
            replace(r, value=0.0, curve=[(1, 0.0)])
            if isinstance(r, Trained)
            else replace(r, peak_bytes=0)
            for r in only(Trained, Timed)
        ],
    }
    page = opened(parts[given])
    assert charts(page) == drawn
    assert texts(page, "#headline")[0]


@pytest.mark.parametrize("end", ["least", "largest"])
def test_the_ends_of_every_range_are_drawn(opened, end):
    """One mechanism has every number at the least, or the largest, that a row may hold."""
    made = []
    for row in SEEDS:
        schema = SCHEMA[KIND[type(row)]]
        given = {
            name: (field.least or 0)
            if end == "least"
            else 2**62
            if field.type == "whole"
            else 1e100
            for name, field in schema.items()
            if field.type in ("whole", "number")
            and name not in ("length", "seed", "dim", "num_heads", "batch")
        }
        if row.mixer == "gau":
            row = replace(
                row, **{n: int(v) if schema[n].type == "whole" else v for n, v in given.items()}
            )
        made.append(row)
    page = opened(made)
    assert charts(page) == 8 and plain(made)["headline"] == texts(page, "#headline")[0]
    drawn = page.run(
        "[...document.querySelectorAll('svg *')].some((e) => /NaN|Infinity/.test(e.outerHTML))"
    )
    assert not drawn


@pytest.mark.parametrize("given", ["seeds", "lengths said", "no softmax", "random", "untrained"])
def test_the_page_says_what_python_says(opened, given):
    noise = random.Random(3)
    made = {
        "seeds": SEEDS,
        "lengths said": LENGTHS_SAID,
        "untrained": only(Timed),
        "no softmax": [row for row in SEEDS if row.mixer != "softmax"],
        "random": [
            replace(row, median_ms=row.baseline_ms * noise.uniform(0.3, 1.4), causal=True)
            if isinstance(row, Timed)
            else row
            for row in SEEDS
            if noise.random() < 0.8
        ],
    }[given]
    page, summary = opened(made), LedgerSummary(made)
    assert texts(page, "#headline") == [plain(made)["headline"]]
    for kind in summary.passes:
        page.choose("pass", kind)
        assert int(page.run("document.getElementById('length').value")) == summary.usual_length(
            kind
        )
        for length in summary.lengths(kind):
            page.choose("length", str(length))
            decisions = [summary.decide(task, kind, length) for task in summary.tasks_for(kind)]
            said = [
                f"{d.choice} for {d.task}: {words.decision(d, summary)}." for d in decisions if d
            ]
            shown = texts(page, "#choices li")
            assert [line for line in shown if "nothing in view" not in line] == said
        overtaking = {line[0]: line[3] for line in cells(page, "#powers") if line[3] != "–"}
        expected = {label: str(of[kind]) for label, of in crossings(summary) if of[kind]}
        assert overtaking == expected
        beyond = {line[0]: line[4] for line in cells(page, "#powers")}
        for label in summary.mechanisms:
            found = None if summary.is_baseline(label) else crossover(summary, label, kind)
            said = str(found).removesuffix(", by growth") if found and not found.measured else "–"
            assert beyond[label] == said


def cells(browser, table, what="textContent"):
    return browser.run(
        f"[...document.querySelectorAll('{table} tbody tr')].map((r) => [...r.cells].map((c) => c.{what} ?? ''))"
    )


def test_the_headline_follows_task_pass_length_and_filter(opened):
    page = opened(LENGTHS_SAID)
    assert texts(page, "#headline")[0].startswith("Forward pass at 256 tokens: ")
    page.choose("task", "digits")
    page.choose("length", "4096")
    assert texts(page, "#headline") == ["Forward pass at 4,096 tokens: fnet for digits."]
    assert "No quality is known at 4,096 tokens: trained at up to 200, digits." in texts(
        page, "#missing li"
    )
    assert texts(page, "#trade figure.far figcaption") == [
        "digits: forward pass at 4,096 tokens, quality at up to 200"
    ]
    page.choose("pass", "decode")
    assert texts(page, "#choices li") == ["Decoding concerns language models, and none is chosen."]
    page.choose("task", "stdlib_bytes")
    assert texts(page, "#headline")[0].startswith("Decoding step at 256 tokens: ")
    assert "not timed for fnet" in " ".join(texts(page, "#missing li"))
    page.run("document.getElementById('none').click()")
    assert texts(page, "#headline")[0].startswith("Nothing to choose from yet")
    assert texts(page, "#in-view") == ["0 of 6"] and charts(page) == 0
    page.run("document.getElementById('front').click()")
    assert "softmax" in [line[0] for line in cells(page, "#standings")]
    assert charts(page) == 4
    page.run("document.getElementById('all').click()")
    page.run("document.querySelector('#mechanisms input').click()")
    assert "softmax" not in [line[0] for line in cells(page, "#standings")]


def test_blocks_are_shown_first_and_bare_layers_when_asked(opened):
    blocks = [
        replace(row, unit="block", median_ms=2 * row.baseline_ms)
        for row in only(Timed)
        if row.mixer != "gau"
    ]
    page = opened([*SEEDS, *blocks])
    speeds = {line[0]: line[5] for line in cells(page, "#standings")}
    assert speeds["linear"] == "0.5×" and speeds["gau"].startswith("–")
    assert plain([*SEEDS, *blocks])["unit"] == "block"
    page.choose("unit", "layer")
    assert texts(page, "#devices")[0].startswith(f"Timed on {WHERE.device}: the bare layer")
    assert cells(page, "#standings") == cells(opened(SEEDS), "#standings")


def test_every_figure_of_the_leaderboard_is_the_ledgers(opened):
    page = opened(SEEDS)
    page.choose("pass", "train")
    page.choose("length", "1024")
    names = [line[0] for line in cells(page, "#standings")]
    found = dict(zip(names, cells(page, "#standings", "dataset.value"), strict=True))
    assert set(found) == {row.mixer for row in SEEDS}
    for mixer, values in found.items():
        for shown, task in zip(values[2:5], ("digits", "listops", "stdlib_bytes"), strict=True):
            of = [r.value for r in only(Trained) if (r.mixer, r.task) == (mixer, task)]
            if of:
                assert float(shown) == pytest.approx(sum(of) / len(of), rel=1e-12)
            else:
                assert shown == ""
        (row,) = [r for r in only(Timed) if (r.mixer, r.kind, r.length) == (mixer, "train", 1024)]
        speed, ms, memory = map(float, values[5:8])
        assert (speed, ms, memory) == pytest.approx((1 / row.ratio, row.median_ms, row.peak_bytes))
    page.run("document.querySelectorAll('#standings th button')[2].click()")
    shown = [float(line[2]) for line in cells(page, "#standings", "dataset.value")]
    assert shown == sorted(shown), "a click on a heading sorts by it"


def test_every_empty_cell_says_why(opened):
    page = opened([row for row in SEEDS if getattr(row, "length", 0) != 2048 or row.mixer != "gau"])
    page.choose("length", "2048")
    reasons = texts(page, "#reasons li")
    marked = {
        (line[0], place): reasons[int(cell[1:]) - 1]
        for line in cells(page, "#standings")
        for place, cell in enumerate(line)
        if cell.startswith("–")
    }
    assert marked["fnet", 4] == "the transform mixes every token with <future> ones"
    assert (
        marked["gau", 5] == "Timed at 256, 512, 1,024 and 4,096 tokens only."
        or marked["gau", 5] == "Timed at 256, 512, 1,024, 4,096 tokens only."
    )
    assert len(marked) == 4


def test_the_leaderboard_is_text_too(opened):
    page = opened(SEEDS)
    shown = cells(page, "#standings")
    written = {}
    for form in ("markdown", "latex", "csv"):
        page.choose("format", form)
        written[form] = page.run("document.getElementById('export-text').value")
    table = list(csv.reader(io.StringIO(written["csv"])))
    assert len(table) == 1 + len(shown) and {len(line) for line in table} == {len(shown[0])}
    assert [line[0] for line in table[1:]] == [line[0] for line in shown]
    lines = written["markdown"].splitlines()
    assert len(lines) == 2 + len(shown) and "synthesizer\\_dense" in written["markdown"]
    assert written["latex"].count("\\\\") == 1 + len(shown)
    assert "synthesizer\\_dense" in written["latex"] and "$\\pm$" in written["latex"]


def test_it_can_be_copied_and_saved(opened):
    page = opened(SEEDS)
    page.run("document.getElementById('copy').click(); new Promise((go) => setTimeout(go, 50))")
    assert texts(page, "#copied")[0]
    page.run(
        "document.getElementById('save').click(); document.getElementById('save-rows').click()"
    )


def test_pointing_at_a_mark_shows_its_figures(opened):
    page = opened(SEEDS)
    page.point("#growth .dot")
    shown = texts(page, "#tip dt, #tip dd")
    assert shown[:4] == ["mechanism", "softmax", "length", "256"]
    assert "softmax" in texts(page, ".label.pointed") and not texts(page, "#tip[hidden]")


def test_a_colleagues_results_are_set_beside_these(opened):
    there = replace(WHERE, device="a colleague's machine")
    theirs = [
        replace(row, mixer="theirs", provenance=there)
        for row in SEEDS
        if isinstance(row, Timed | Trained) and row.mixer == "linear"
    ]
    theirs += [replace(theirs[0], data_sha256="0" * 64, task=theirs[0].task, seed=9)]
    page = opened(SEEDS)
    page.drop("colleague.html", render(theirs))
    assert texts(page, "#refused") == [""] and texts(page, "#files li") == ["colleague ×"]
    assert "theirs · colleague" in [line[0] for line in cells(page, "#standings")]
    notes = " ".join(texts(page, "#notes li"))
    assert "a colleague's machine" in notes
    page.drop("colleague.json", inside(render(theirs)))
    assert texts(page, "#files li") == ["colleague ×", "colleague (2) ×"]
    page.run("document.querySelector('#files button').click()")
    assert texts(page, "#in-view") == ["7 of 7"]
    for name, text in {
        "a.json": "{",
        "b.json": "[" * 99_999,
        "c.json": '{"format": 1}',
        "d.html": "<p>",
    }.items():
        page.drop(name, text)
        assert f"{name} was not added: " in texts(page, "#refused")[0]
    assert texts(page, "#in-view") == ["7 of 7"] and charts(page) == 8


@pytest.mark.parametrize(
    "unlike",
    [
        {"data_sha256": "0" * 64},
        {"task_source": "0" * 64},
        {"provenance": replace(WHERE, versions={"torch": "2.13.0", "regard": "9.9"})},
    ],
    ids=list,
)
def test_runs_on_other_data_are_not_compared(opened, unlike):
    other = [replace(row, **unlike) for row in SEEDS if isinstance(row, Trained)]
    page = opened(SEEDS)
    page.drop("other.html", render(other))
    assert (
        "other: 51 runs on other data, another metric, or another version of the task, of regard or of torch left out."
        in texts(page, "#notes li")
    )


def many(mechanisms=40, tasks=10, seeds=5):
    """A ledger as large as one may be."""
    noise, made, names = random.Random(0), [], MIXERS.names()
    speeds = dict(SPEED)
    for i in range(mechanisms):
        mixer = names[i] if i < len(names) else f"a_mechanism_of_my_own_{i}"
        given = (noise.uniform(0.4, 2), noise.uniform(-0.8, 0.1), noise.uniform(10, 400), 1.5)
        SPEED[mixer] = speeds.get(mixer, given)
        for task in range(tasks):
            quality = noise.uniform(0.3, 0.9)
            for seed in range(seeds):
                row = trained(mixer, f"task_{task}", "accuracy", "higher", quality, seed, noise)
                started = replace(WHERE, started=f"2026-01-05T10:{i:02}:{seed:02}Z")
                made.append(replace(row, length=256, provenance=started))
        for kind in ("forward", "train", "decode"):
            made += [timed(mixer, kind, length, noise) for length in LENGTHS]
    SPEED.clear()
    SPEED.update(speeds)
    return made


CUT = """(() => {
  const cut = [];
  const page = document.documentElement;
  if (page.scrollWidth > page.clientWidth) cut.push(`page ${page.scrollWidth} > ${page.clientWidth}`);
  for (const svg of document.querySelectorAll("svg.chart")) {
    const box = svg.getBoundingClientRect();
    if (box.right > page.clientWidth) cut.push(`chart to ${box.right}`);
    for (const part of svg.querySelectorAll("text, circle, polyline")) {
      const own = part.getBoundingClientRect();
      if (own.left < box.left - 1 || own.right > box.right + 1 || own.top < box.top - 1 || own.bottom > box.bottom + 1) {
        cut.push(`${part.tagName} ${part.textContent} of ${svg.getAttribute("aria-label")}`);
      }
    }
  }
  for (const part of document.querySelectorAll(".scroll")) if (part.scrollWidth > part.clientWidth + 1) cut.push(part.firstChild.id);
  return cut;
})()"""


@pytest.mark.parametrize("given", ["quick", "many"])
def test_nothing_is_cut_and_charts_use_the_width(opened, given):
    blocks = [replace(row, unit="block") for row in only(Timed)]
    made = [*LENGTHS_SAID, *blocks] if given == "quick" else many()
    assert len(render(made)) < 2.5e6
    page = opened(made, width=1400)
    for width in (1400, 400):
        page.resize(width)
        page.run("new Promise((go) => requestAnimationFrame(() => setTimeout(go, 100)))")
        page.choose("task", "")
        assert page.run(CUT) == []
        page.choose("task", made[1].task if given == "quick" else "task_3")
        assert page.run(CUT) == []
        wide = page.run("document.querySelector('#trade svg').getBoundingClientRect().width")
        assert wide > 0.9 * min(width, 1600) - 50
    if given == "many":
        lines = page.run("document.querySelectorAll('#growth svg:first-child .line').length")
        assert lines == 2 * 40


def test_dark_and_light_differ(opened):
    ground = "getComputedStyle(document.body).backgroundColor"
    assert opened(SEEDS).run(ground) != opened(SEEDS, dark=True).run(ground)


# ---- nothing received runs


def poisoned(quarter):
    """Rows of 50 mechanisms, each with its own task: over the quarters, each payload is in each text field."""

    def text(number, turn):
        return PAYLOADS[(number + 17 * turn) % len(PAYLOADS)]

    made = []
    bases = {type(row): row for row in reversed(rows())}
    for i in range(quarter, len(PAYLOADS), 4):
        for row in bases.values():
            given = {"mixer": text(i, 0)}
            for turn, (name, field) in enumerate(SCHEMA[KIND[type(row)]].items(), start=1):
                if field.type == "text" and name not in ("mixer", "metric"):
                    given[name] = text(i, turn)
                if field.type == "options":
                    given[name] = {text(i, 10): [text(i, 11)]}  # of one mechanism, as is the source
            given["source"] = text(i, 9)
            if isinstance(row, Trained):
                given["metric"] = text(i, 3)
            if not isinstance(row, NotRun):
                here = {
                    name: text(i, turn)
                    for turn, (name, field) in enumerate(SCHEMA["origin"].items())
                    if field.type == "text"
                }
                if isinstance(row, Timed):
                    here |= {"device": text(0, 5), "dtype": text(0, 6)}  # of one machine
                given["provenance"] = replace(WHERE, **here, versions={text(i, 7): text(i, 8)})
            made.append(replace(row, **given))
    return made


KIND = {
    type(row): kind for row in rows() for kind, of in SCHEMA.items() if set(of) == set(vars(row))
}
RAN = "Boolean(document.documentElement.dataset.ran || globalThis.ran || document.querySelector('iframe, object, base'))"
POINT_AT_MARKS = """for (const mark of document.querySelectorAll(".mark, .dot:first-of-type, #mechanisms label"))
  mark.dispatchEvent(new Event("pointerover", {bubbles: true}))"""


@pytest.mark.parametrize("quarter", range(4))
def test_nothing_in_a_forged_ledger_runs_and_no_chart_is_lost(opened, quarter):
    made = poisoned(quarter)
    page = opened(made)
    assert unpacked(inside(render(made))) == made
    assert charts(page) == 50 + 2 + 50
    assert page.run("document.querySelectorAll('#trade circle').length") == 50
    assert page.run("document.querySelectorAll('#growth .dot').length") == 100
    page.run(POINT_AT_MARKS)
    assert not page.run(RAN)
    written = {}
    for form in ("markdown", "latex", "csv"):
        page.choose("format", form)
        written[form] = page.run("document.getElementById('export-text').value")
    table = list(csv.reader(io.StringIO(written["csv"])))
    assert len(table) == 51 and not [c for line in table for c in line if c[:1] in ("=", "+", "@")]
    allowed = "begin end toprule midrule bottomrule textbf pm times"
    allowed += " textbackslash textasciicircum textasciitilde"
    assert set(re.findall(r"\\([a-zA-Z]+)", written["latex"])) <= set(allowed.split())
    assert "<" not in written["markdown"] and len(written["markdown"].splitlines()) == 52


def test_nothing_in_a_dropped_file_runs(opened):
    page = opened(SEEDS)
    page.choose("length", "256")
    for quarter in range(4):
        page.drop(PAYLOADS[quarter], render(poisoned(quarter)))
        assert texts(page, "#refused") == [""] and texts(page, "#in-view") == ["56 of 56"]
        assert charts(page) == 53 + 2 + 53 and not page.run(RAN)
        page.run("document.querySelector('#files button').click()")
    page.run(FORGE + f"; globalThis.payloads = {json.dumps(PAYLOADS)}")
    fields = [
        (kind, name)
        for kind in (*KIND.values(), "origin")
        for name, field in SCHEMA[kind].items()
        if field.type not in ("text", "origin")
    ]
    assert len(fields) > 30
    for kind, name in fields:
        page.run(f"forge({json.dumps(kind)}, {json.dumps(name)})")
        (said,) = texts(page, "#refused")
        assert said.count("was not added: the field") == 200, (kind, name, said[:300])
    assert texts(page, "#in-view") == ["6 of 6"] and charts(page) == 8 and not page.run(RAN)


FORGE = """globalThis.forge = async (kind, name) => {
  const data = new DataTransfer();
  const whole = JSON.parse(document.getElementById("results").textContent);
  const place = whole.rows.findIndex((row) => row[0] === (kind === "origin" ? "timed" : kind));
  const bad = {...whole, rows: [whole.rows[place]], labels: [0]};
  if (kind === "origin") bad.origins[0][name] = "@@";
  else bad.rows[0][bad.fields[kind].indexOf(name) + 1] = "@@";
  const frame = JSON.stringify(bad);
  for (const [i, payload] of payloads.entries()) {
    const text = frame.replace('"@@"', () => JSON.stringify(payload));
    data.items.add(new File([text], `${i}.json`));
  }
  document.dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));
  const said = document.getElementById("refused");
  const until = performance.now() + 30000;
  said.textContent = "";
  while (!said.textContent && performance.now() < until) await new Promise((go) => setTimeout(go, 5));
}"""


def test_the_policy_lets_only_its_own_script_run(browser, tmp_path):
    page = render(SEEDS)
    assert "unsafe" not in re.search(r'Security-Policy" content="([^"]*)"', page).group(1)
    path = tmp_path / "report.html"
    path.write_text(page + "<script>document.documentElement.dataset.ran = 1</script>")
    browser.open(path)
    assert not browser.run(RAN)
    assert any("Content Security Policy" in line for line in browser.complaints)
    for sink in ("document.body.innerHTML = '<img src=x onerror=0>'", "eval('1')"):
        refused = browser.run(
            f"(() => {{ try {{ {sink}; return false }} catch {{ return true }} }})()"
        )
        assert refused or "eval" in sink
