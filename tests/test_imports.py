"""The house's arrows: who may import whom, functions included."""

import importlib
import re
import sys
from importlib.metadata import packages_distributions

import grimp
import pytest

import regard
from regard import lab
from regard.lab import PACKAGES
from tests.command import python
from tests.packaging import PROJECT

LAYERS = {"core", "functional", "nn", "positions"}
WHOLE = LAYERS | {"mixers", "pools", "models"}
LIBRARY = WHOLE | {"reference"}
MAY_IMPORT = {
    "core": set(),
    "reference": set(),
    "functional": {"core"},
    "fast": {"core", "functional"},
    "nn": {"core", "functional"},
    "positions": {"core", "functional"},
    "mixers": LAYERS,
    "pools": LAYERS,
    "models": LAYERS | {"mixers", "pools"},
    "parallel": {"core", "nn", "models"},
    "hf": WHOLE,
    "explore": WHOLE,
    "testing": LIBRARY,
    "lab": LIBRARY | {"explore", "testing"},
    "cli": LIBRARY | {"explore", "testing", "lab", "hf"},
    "__main__": {"cli"},
}
"""Part of the package -> the parts that it may import."""

LAB_MAY_IMPORT = {
    "data": set(),
    "tasks": {"data"},
    "train": {"data", "tasks"},
    "experiment": {"data", "tasks", "train"},
    "questions": {"data", "tasks", "train", "experiment"},
    "report": {"data", "experiment"},
    "growth": set(),
    "recommend": {"data", "experiment", "questions", "report", "growth"},
    "tables": {"data", "tasks", "train"},
}
"""The same inside `lab`."""
RULES = {"regard": MAY_IMPORT, "regard.lab": LAB_MAY_IMPORT}

SLOW = {*PACKAGES, "rich", "transformers", "tyro"} - {"filelock"}


def arrows(package: str) -> dict[str, set[str]]:
    """Part of the package -> what its modules import outside of it.

    A name of `regard` itself, such as `regard.build`, counts as the highest part that `import regard` loads.
    """
    graph = grimp.build_graph("regard", include_external_packages=True, cache_dir=None)
    # This one does without it, too.
    graph.remove_import(importer="regard.functional.rows", imported="regard.fast")
    parts = graph.find_children(package)
    for part in parts:
        graph.squash_module(part)
    found = {part: graph.find_modules_directly_imported_by(part) - {part} for part in parts}
    for names in found.values():
        if "regard" in names:
            names.add("regard.mixers")
    return found


@pytest.mark.parametrize("package", RULES)
def test_imports_run_one_way(package):
    for part, names in arrows(package).items():
        allowed = {f"{package}.{name}" for name in RULES[package][part.rpartition(".")[2]]}
        wrong = {name for name in names if name.startswith(f"{package}.")} - allowed
        assert not wrong, f"{part} imports {sorted(wrong)}"


def test_oracles_and_core_import_torch_and_shapes_alone():
    for part, inside in (("reference", {"torch"}), ("core", {"torch", "jaxtyping"})):
        assert arrows("regard")[f"regard.{part}"] <= inside | sys.stdlib_module_names


def modules_after(*steps: str) -> list[set[str]]:
    """Names of all modules that are loaded once each step has run, all in one process of their own."""
    shown = "\nimport sys; print(chr(10) + chr(0), *sys.modules)\n"
    done = python("-c", shown.join((*steps, "")))
    assert done.returncode == 0, done.stderr
    return [set(line.split()[1:]) for line in done.stdout.splitlines() if line.startswith("\0")]


def test_import_regard_is_light_and_every_public_name_is_found_when_it_is_first_used():
    """Modules are counted, since seconds depend on the machine."""
    start, light, torch, mixer, built, _ = modules_after(
        "",
        "import regard",
        "import torch",
        "regard.Mixer",
        "regard.build, regard.MIXERS, regard.functional",
        "names = dir(regard); assert len(names) > 30\n"
        "assert all(getattr(regard, name) is not None for name in names)",
    )
    assert not {"torch", "regard.core"} & light
    ours = mixer - torch | light - start
    assert len(ours) < 60 and len([name for name in ours if name.startswith("regard")]) < 30
    assert {name.split(".")[1] for name in ours if name.startswith("regard.")} == {"core"}
    assert not ours & SLOW
    assert "regard.mixers.linear" in built and not built & SLOW
    later = {f"regard.{name}" for name in ("models", "hf", "lab", "cli", "reference", "testing")}
    assert not built & later
    assert {*regard.__all__, "pools", "lab"} <= set(dir(regard))
    assert not hasattr(regard, "__wrapped__")


def test_the_list_of_commands_is_printed_without_torch():
    start = "import sys; sys.argv = ['regard']; from regard.cli import main; main({!r})"
    for args in (["--help"], ["--version"], []):
        (loaded,) = modules_after(start.format(args))
        assert "torch" not in loaded and "tyro" not in loaded and len(loaded) < 150


WITHOUT_LAB = f"""
import importlib, pkgutil, sys
sys.modules |= dict.fromkeys({(*PACKAGES, "transformers")})  # they cannot be imported
import regard
from regard.cli import main
"""


def test_the_library_its_front_and_the_adapters_do_without_the_laboratory():
    """Where no package of the extra `lab` can be imported, nor Transformers."""
    code = (
        f"names = [m.name for part in {[*LIBRARY, 'explore', 'testing']} for m in"
        " pkgutil.walk_packages([f'{regard.__path__[0]}/{part}'], f'regard.{part}.')]\n"
        "for name in names: importlib.import_module(name)\n"
        "print(len(names), regard.pools.__name__, regard.MODELS['classifier'].name)\n"
        "for name in ('hf', 'TASKS'):\n"
        "    try: getattr(regard, name)\n"
        "    except ModuleNotFoundError as error: print(error)\n"
        "assert [main([c]) for c in ('ls', 'doctor')] == [0, 0]\n"
        "assert main(['show', 'performer']) == 0 and main(['arena', 'quick']) == 1"
    )
    done = python("-c", WITHOUT_LAB + code)
    assert done.returncode == 0, done.stderr
    found, adapters, tasks, front = done.stdout.split("\n", 3)
    count, *named = found.split()
    assert int(count) > 150 and named == ["regard.pools", "classifier"]
    needs = "{} needs {}, which is not installed: pip install 'regard[{}]'".format
    assert adapters == needs("regard.hf", "transformers", "hf")
    assert tasks == needs("regard.TASKS", "filelock", "lab")
    assert "arXiv 2009.14794" in front and "scikit-learn (lab)" in front
    assert "which is not installed: pip install 'regard[lab]'" in done.stderr


def test_the_extra_brings_what_is_imported_and_whichever_package_is_missing_is_named(monkeypatch):
    for package in PACKAGES:
        missing = {package: None}
        monkeypatch.setattr(lab, "find_spec", lambda name, found=missing: found.get(name, 1))
        with pytest.raises(ModuleNotFoundError, match=f"regard.lab needs {package}, "):
            lab.require_packages()
    declared = PROJECT["optional-dependencies"]["lab"]
    names = {re.split(r"[><=]", entry)[0].lower() for entry in declared}
    brought = packages_distributions()
    found = {name.lower().replace("_", "-") for package in PACKAGES for name in brought[package]}
    assert found == names


def test_oracles_are_found_by_name():
    from regard import reference

    for cls in regard.MIXERS.values():
        oracle = getattr(reference, cls.name)
        assert oracle.__module__.removeprefix("regard.reference.").rstrip("_") == cls.name
        assert oracle.__name__.rstrip("_") == cls.name
    importlib.import_module("regard.reference.softmax")
    assert callable(reference.softmax)
    with pytest.raises(AttributeError, match=r"no file regard/reference/softmx\.py"):
        reference.softmx  # noqa: B018
