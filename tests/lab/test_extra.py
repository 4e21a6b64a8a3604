"""Without one package of the extra `lab`, the laboratory says so in one line."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from regard import lab
from regard.lab import PACKAGES

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "tokenizers":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
import regard
from regard.cli import main
try:
    regard.TASKS
except ModuleNotFoundError as error:
    print(error)
sys.exit(main(["train", "digits"]))
"""


def test_a_missing_package_of_the_laboratory_is_named_with_the_extra():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    needed = "needs tokenizers, which is not installed: pip install 'regard[lab]'\n"
    assert (done.returncode, done.stdout) == (1, f"regard.TASKS {needed}")
    assert done.stderr == f"regard: train {needed}"


def test_whichever_package_is_missing_is_named(monkeypatch):
    for package in PACKAGES:
        monkeypatch.setattr(
            lab, "find_spec", lambda name, gone=package: None if name == gone else 1
        )
        with pytest.raises(ModuleNotFoundError, match=f"regard.lab needs {package}, "):
            lab.require_packages()


def test_the_extra_brings_what_is_imported():
    declared = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]["lab"]
    names = {re.split(r"[><=]", entry)[0].lower() for entry in declared}
    brought = packages_distributions()
    assert {
        name.lower().replace("_", "-") for package in PACKAGES for name in brought[package]
    } == names
