"""The code in README.md and in docs/ runs, and what they quote is real."""

import re
import shutil

import pytest
import torch

import regard
from regard.cli import main
from regard.lab.experiment import mechanism_laws as laws
from regard.testing import LAWS, check_mixer
from tests.command import python, run_code
from tests.packaging import ROOT, block

DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text()
USING = (DOCS / "using.md").read_text()
ADDING = (DOCS / "adding.md").read_text()
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("examples/*.md")]
PAGES += [path for path in DOCS.rglob("*.md") if path.parent.name != "reference"]
GENERATED = {"index", "names", *regard.MIXERS.names()}  # by `make site`, which checks links too


def test_the_readme_is_short_and_its_code_runs():
    assert len(README.encode()) <= 5000
    code = block(README, "quickstart")
    assert len([line for line in code.splitlines() if line]) <= 12
    run_code(code, "readme_quickstart")


@pytest.mark.parametrize("law", LAWS)
def test_the_mechanism_of_the_guide_obeys_every_law(law):
    oracle = run_code(block(ADDING, "oracle"), "guide_oracle")["average"]
    Average = run_code(block(ADDING, "class"), "guide_class")["Average"]
    assert check_mixer(lambda: Average(24, num_heads=3), law, oracle=oracle) == [law]


def test_the_five_steps_followed_to_the_letter_make_a_mechanism(tmp_path):
    shutil.copytree(ROOT / "regard", tmp_path / "regard", ignore=shutil.ignore_patterns("*.pyc"))
    for part, name in (("reference", "oracle"), ("mixers", "class")):
        assert f"`regard/{part}/average.py`" in ADDING
        (tmp_path / f"regard/{part}/average.py").write_text(block(ADDING, name))
    listed = tmp_path / "regard/mixers/__init__.py"
    line, entry = "from regard.mixers.bigbird import BigBird\n", "        Softmax,\n"
    text = listed.read_text()
    assert line in text and entry in text
    text = text.replace(line, f"from regard.mixers.average import Average\n{line}")
    listed.write_text(text.replace(entry, f"        Average,\n{entry}"))
    code = (
        "import sys; from regard.cli import main; sys.exit(main(['show', 'average'])"
        " or main(['laws', 'average', '--law', 'reference', 'causality', 'streaming']))"
    )
    done = python("-c", code, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "arXiv 1805.00631" in done.stdout and "3 passed" in done.stdout


def test_the_class_of_the_guide_alone_is_judged_and_enters_the_arena(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(laws, "check_mixer", lambda factory, **_: ["all"])
    (tmp_path / "average.py").write_text(block(ADDING, "class"))
    (tmp_path / "oracle.py").write_text(block(ADDING, "oracle"))
    asked = "laws average:Average --oracle oracle:average"
    assert f"regard {asked} " in ADDING
    assert main([*asked.split(), "--law", "causality", "reference"]) == 0
    assert "2 passed" in capsys.readouterr().out
    (line,) = re.findall(r"^regard (arena .*average:Average)", ADDING, re.M)
    small = "--task listops --task-options min_length=5 max_length=20 train_size=32 valid_size=4 test_size=4 --tokens 100 --dim 8 --lengths 8 --workers 1"
    assert main([*line.split(), *small.split()]) == 0
    assert main(["report"]) == 0
    assert re.search(r"^average:Average +\d", capsys.readouterr().out, re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r'\]\(([^)#:"]+)(?:#[^)]*)?\)', page.read_text()):
        path = (page.parent / target).resolve()
        if path.parent == DOCS / "reference":
            assert path.stem in GENERATED, target
        else:
            assert path.exists(), target


def test_generated_tables_are_fresh_and_one_that_is_stale_is_noticed():
    done = python("-c", STALE, cwd=DOCS)
    assert (done.returncode, done.stdout) == (1, "stale: mechanisms.md\n"), done.stderr


STALE = """
import sys, tables
path, make = tables.TABLES["mechanisms"]
tables.TABLES["mechanisms"] = path, lambda: make() + " "
sys.exit(tables.main(check=True))
"""


def test_the_errors_that_are_quoted_are_the_real_ones():
    x = torch.randn(1, 3, 4)
    with pytest.raises(regard.UnsupportedError) as refused:
        mask = regard.Mask(pairwise=torch.ones(1, 1, 3, 3, dtype=torch.bool))
        regard.build("linear", dim=4, num_heads=1)(x, mask=mask)
    assert str(refused.value).partition("Mixers that do")[0] in USING
    with pytest.raises(regard.UnknownNameError) as unknown:
        regard.build("liner", dim=4)
    assert str(unknown.value) in USING
