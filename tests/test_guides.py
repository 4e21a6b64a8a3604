"""Every block of Python in the documents and every example runs, in one process each, in an empty folder; the notebooks are theirs."""

import json
import re
import runpy
import sys

import pytest
import torch

import regard
from tests.command import run_code
from tests.packaging import ROOT

DOCS, EXAMPLES = ROOT / "docs", ROOT / "examples"
sys.path.insert(0, str(DOCS))
import pages  # noqa: E402
from notebooks import NOTEBOOKS, cells  # noqa: E402

PAGES = sorted((DOCS / "guides").glob("*.md"))
PAGES += [DOCS / f"{name}.md" for name in ("tutorial", "huggingface", "explore", "using")]
BLOCKS = {p: re.findall(r"^```python\n(.*?)^```", p.read_text(), re.M | re.S) for p in PAGES}


@pytest.mark.parametrize("page", [p for p in PAGES if BLOCKS[p]], ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    run_code("\n".join(BLOCKS[page]), f"page_{page.stem}")


def test_both_tutorials_have_the_same_code_and_pictures():
    def kept(text):
        code = re.findall(r"^(?:```python\n.*?^```|```\{.*?\n```)", text, re.M | re.S)
        return [re.sub(r"#.*", "", block) for block in code]

    english, chinese = ((DOCS / name).read_text() for name in ("tutorial.md", "tutorial.zh.md"))
    assert kept(english) == kept(chinese) and len(kept(english)) > 40


def test_figures_show_every_length_that_was_measured_and_every_word_has_its_chinese():
    script = (DOCS / "_static/saved.js").read_text()
    chinese = re.search(r"CHINESE = \{.*?\n\}", script, re.S)[0]
    rows = (row for name in regard.MIXERS for row in pages.timings(name))
    words = {word for row in rows for word in row["what"].split(", ")}
    assert len(words) == 5 and all(f'"{word}": ' in chinese for word in words)
    said = set(re.findall(r'said\(\w+, "(.*?)"\)', script)) | {"pass", "ms", "times as fast"}
    assert len(said) == 6 and all(f'"{word}": ' in chinese for word in said)
    lengths = {row["length"] for row in pages.timings("linear")}
    peers = {int(path.stem) for path in (DOCS / "peers").glob("*.json")}
    assert len(peers) >= 3 and lengths == peers


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_runs_at_reduced_size(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_SMALL", "1")
    monkeypatch.setattr(sys, "argv", [path.name])
    with torch.random.fork_rng(devices=[]):
        runpy.run_path(str(path), run_name=f"example_{path.stem}")
    assert capsys.readouterr().out
    assert path.name in (EXAMPLES / "README.md").read_text()


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_its_program_and_opens_with_outputs(name):
    book = json.loads((EXAMPLES / f"{name}.ipynb").read_text())
    held = [(cell["cell_type"], "".join(cell["source"])) for cell in book["cells"]]
    assert held == cells((EXAMPLES / f"{name}.py").read_text()), "`make notebooks`"
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    printing = [cell for cell in code if "print(" in "".join(cell["source"])]
    assert printing and all(cell["outputs"] for cell in printing)
    assert not any(out["output_type"] == "error" for c in printing for out in c["outputs"])
