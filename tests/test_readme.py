"""The code in README.md and in docs/ runs, and what they quote is real."""

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import regard
from regard.cli import COMMANDS
from regard.testing import LAWS, check_mixer

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text()
USING = (DOCS / "using.md").read_text()
ADDING = (DOCS / "adding.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.glob("*.md")]


def block(text: str, name: str) -> str:
    """The Python code under the marker of this name."""
    code = re.search(rf"<!-- {name} -->\n```python\n(.*?)```", text, re.S)
    assert code is not None
    return code[1]


def run(code: str, name: str) -> dict[str, Any]:
    found = sys.modules[name] = ModuleType(name)  # so that its classes can be pickled
    exec(compile(code, name, "exec"), vars(found))
    return vars(found)


def test_the_readme_is_short_and_its_code_runs():
    assert len(README.encode()) <= 5000
    code = block(README, "quickstart")
    assert len([line for line in code.splitlines() if line]) <= 12
    run(code, "readme_quickstart")


def test_the_examples_of_models_run():
    code = block(USING, "models")
    examples = code.split("\n\n")[1:]
    assert len(examples) == 3
    assert all(len(example.strip().splitlines()) <= 5 for example in examples)
    found = run(code, "readme_models")
    assert found["target"].shape[0] == 2 and found["logits"].shape == (2, 32, 100)


@pytest.mark.parametrize("law", LAWS)
def test_the_mechanism_of_the_guide_obeys_every_law(law):
    oracle = run(block(ADDING, "oracle"), "guide_oracle")["average"]
    Average = run(block(ADDING, "class"), "guide_class")["Average"]
    assert check_mixer(lambda: Average(24, num_heads=3), law, oracle=oracle) == [law]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r'\]\(([^)#:"]+)(?:#[^)]*)?\)', page.read_text()):
        assert (page.parent / target).exists(), target


def test_generated_tables_are_fresh():
    done = subprocess.run(
        [sys.executable, DOCS / "tables.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_a_stale_table_is_noticed():
    done = subprocess.run([sys.executable, "-c", STALE], capture_output=True, text=True, cwd=DOCS)
    assert done.returncode == 1 and "stale: mechanisms.md" in done.stdout, done.stderr


STALE = """
import sys, tables
path, make = tables.TABLES["mechanisms"]
tables.TABLES["mechanisms"] = path, lambda: make() + " "
sys.exit(tables.main(check=True))
"""


def test_every_command_is_described():
    named = set(re.findall(r"^\| `regard (\w+)", USING, re.M))
    assert named == set(COMMANDS)


def test_the_errors_that_are_quoted_are_the_real_ones():
    x = torch.randn(1, 3, 4)
    with pytest.raises(regard.UnsupportedError) as refused:
        mask = regard.Mask(pairwise=torch.ones(1, 1, 3, 3, dtype=torch.bool))
        regard.build("linear", dim=4, num_heads=1)(x, mask=mask)
    assert str(refused.value).partition("Mixers that do")[0] in USING
    with pytest.raises(regard.UnknownNameError) as unknown:
        regard.build("liner", dim=4)
    assert str(unknown.value) in USING
