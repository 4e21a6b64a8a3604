import gc
import json
import os
import shutil
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

# An export with a free length takes a quarter less: nearly every shape is met once.
os.environ.setdefault("TORCH_FAKE_TENSOR_DISPATCH_CACHE", "0")
# Programs of many small objects are made and let go: the collector's usual pace costs a tenth of the laws on compiling and exporting.
gc.set_threshold(50_000, 20, 20)

FILES = set()
LONG = {f"test_{name}.py" for name in ("without_fast", "device_counts", "faults", "launched")}


def pytest_addoption(parser):
    parser.addoption("--laws-to", type=Path, help="JSON file for what each law found in each mixer")


def pytest_runtest_logstart(nodeid, location):
    """What is imported stays: a collection, which training asks for, looks at what a file's tests made, and not at all of torch."""
    if location[0] not in FILES:
        FILES.add(location[0])
        gc.collect()
        gc.freeze()


def pytest_collection_modifyitems(items):
    """Tests of half a minute come first: at the end, one process would wait for another that runs them."""
    items.sort(key=lambda item: item.path.name not in LONG)


@pytest.fixture(scope="session", autouse=True)
def small_matrix_products():
    """The machine's own rate comes from a small product: a test needs no true rate, and every round of timing has one."""
    from regard.lab.experiment.speed import SIDE

    SIDE["cpu"] = 64


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import expect, sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("needs chromium on the PATH to draw the page")
    expect.set_options(timeout=30_000)  # a machine may be busy with other tests
    with sync_playwright() as driver:
        yield driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])


@pytest.fixture
def opened(chromium, tmp_path):
    """Draws a page; afterwards it has complained of nothing, and has tried to go nowhere."""
    tab, complaints = chromium.new_page(offline=True), []
    for event in ("console", "pageerror", "dialog", "popup", "framenavigated"):
        tab.on(event, lambda said: complaints.append(str(said)))
    tab.on("dialog", lambda dialog: dialog.dismiss())

    def open_page(text, *, width=1200, dark=False):
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        tab.set_viewport_size({"width": width, "height": 900})
        tab.emulate_media(color_scheme="dark" if dark else "light")
        tab.goto(path.as_uri())
        tab.wait_for_selector("[data-charts=drawn]")
        complaints.remove(str(tab.main_frame))
        return tab

    yield open_page
    tab.close()
    assert complaints == []


def pytest_terminal_summary(terminalreporter, config):
    """How many law cases were run, and with what verdict, so that a catalogue that shrinks is seen."""
    passed = terminalreporter.stats.get("passed", [])
    found = [dict(report.user_properties).get("law") for report in passed]
    cases = [tuple(case) for case in found if case]
    if not cases:
        return
    verdicts = Counter(outcome for _, _, outcome, _, _ in cases)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    terminalreporter.write_line(f"law cases, {len(cases)} in all: {counts}")
    if (path := config.getoption("--laws-to")) is not None:
        told = {**origin(), "matrix": matrix(cases)}
        path.write_text(json.dumps(told, indent=1) + "\n")


def matrix(cases):
    """Mixer -> law -> cases by outcome, comparisons, and the worst error as a part of what is allowed."""
    rows = {}
    for name, law, outcome, comparisons, worst in sorted(cases):
        row = rows.setdefault(name, {}).setdefault(law, {"comparisons": 0, "worst": 0.0})
        row[outcome] = row.get(outcome, 0) + 1
        row["comparisons"] += comparisons
        row["worst"] = max(row["worst"], round(worst, 4))
    return rows


def origin():
    """Where the counts of a run come from, as docs/trust.md names it."""
    from regard.lab.experiment.provenance import commit, describe, versions

    today = datetime.now(UTC).date().isoformat()
    return {"commit": commit(), "machine": describe("cpu"), "versions": versions(), "date": today}
