"""Without one package of the extra `lab`, the laboratory says so in one line."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from regard.lab import PACKAGES

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
import regard
from regard.cli import main
try:
    regard.TASKS
except ModuleNotFoundError as error:
    print(error)
sys.exit(main(["train", "digits"]))
"""


@pytest.mark.parametrize("package", ["tokenizers", "jinja2"])
def test_a_missing_package_of_the_laboratory_is_named_with_the_extra(package):
    code = WITHOUT.format(package=package)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    needed = f"needs {package}, which is not installed: pip install 'regard[lab]'\n"
    assert (done.returncode, done.stdout) == (1, f"regard.TASKS {needed}")
    assert done.stderr == f"regard: train {needed}"


def test_the_extra_brings_what_is_imported():
    declared = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]["lab"]
    names = {re.split(r"[><=]", entry)[0].lower() for entry in declared}
    brought = packages_distributions()
    assert {
        name.lower().replace("_", "-") for package in PACKAGES for name in brought[package]
    } == names
