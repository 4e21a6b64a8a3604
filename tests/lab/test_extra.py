"""Without one package of the extra `lab`, the laboratory says so in one line."""

import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from regard import lab
from regard.lab import PACKAGES

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


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
