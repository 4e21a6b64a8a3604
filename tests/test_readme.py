"""What the README says is run."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from regard.cli import COMMANDS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_quickstart_runs():
    code = re.search(r"<!-- quickstart -->\n```python\n(.*?)```", README, re.S)
    assert code is not None
    assert len([line for line in code[1].splitlines() if line]) <= 12
    exec(compile(code[1], "README.md", "exec"), {})


def test_the_examples_of_models_run():
    code = re.search(r"<!-- models -->\n```python\n(.*?)```", README, re.S)
    assert code is not None
    examples = code[1].split("\n\n")[1:]
    assert len(examples) == 3
    assert all(len(example.strip().splitlines()) <= 5 for example in examples)
    found: dict[str, Any] = {}
    exec(compile(code[1], "README.md", "exec"), found)
    assert found["target"].shape[0] == 2 and found["logits"].shape == (2, 32, 100)


def test_generated_tables_are_fresh():
    done = subprocess.run(
        [sys.executable, ROOT / "docs/tables.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_a_stale_table_is_noticed():
    done = subprocess.run(
        [sys.executable, "-c", STALE], capture_output=True, text=True, cwd=ROOT / "docs"
    )
    assert done.returncode == 1 and "stale: README.md" in done.stdout, done.stderr


STALE = """
import sys, tables
path, make = tables.TABLES["mechanisms"]
tables.TABLES["mechanisms"] = path, lambda: make() + " "
sys.exit(tables.main(check=True))
"""


def test_the_readme_names_every_command():
    named = set(re.findall(r"^\| `regard (\w+)", README, re.M))
    assert named == set(COMMANDS)


def test_the_errors_that_it_quotes_are_the_real_ones():
    import pytest
    import torch

    import regard

    x = torch.randn(1, 3, 4)
    with pytest.raises(regard.UnsupportedError) as refused:
        mask = regard.Mask(pairwise=torch.ones(1, 1, 3, 3, dtype=torch.bool))
        regard.build("linear", dim=4, num_heads=1)(x, mask=mask)
    assert str(refused.value).partition("Mixers that do")[0] in README
    with pytest.raises(regard.UnknownNameError) as unknown:
        regard.build("liner", dim=4)
    assert str(unknown.value) in README
