"""The house's arrows, read off the syntax trees: who may import whom."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import regard

PACKAGE = Path(regard.__file__).parent

MAY_IMPORT = {
    "core": set(),
    "reference": set(),
    "functional": {"core"},
    "nn": {"core", "functional"},
    "positions": {"core", "functional"},
    "mixers": {"core", "functional", "nn", "positions"},
    "pools": {"core", "functional", "nn", "positions"},
    "models": {"core", "functional", "nn", "positions", "mixers", "pools"},
    "data": {"core"},
    "tasks": {"core", "data"},
    "train": {"core", "tasks"},
    "arena": {"core", "functional", "models", "mixers", "tasks", "train", "testing"},
    "testing": {"core", "reference", "mixers"},
    "estimator": {"core", "data", "models", "tasks", "train"},
    "explore": {"core", "models"},
    "hf": {"core", "functional", "nn", "positions", "mixers", "pools", "models"},
}
"""Part -> the parts that it may import; cli and recipes may import anything."""

FRONT = {"cli", "__main__", "recipes"}
SLOW = (
    "accelerate",
    "altair",
    "sklearn",
    "tyro",
    "tensorboard",
    "torchmetrics",
    "rich",
    "rouge_score",
    "sacrebleu",
    "tokenizers",
    "vl_convert",
)
INSIDE_CORE = {"torch", "jaxtyping"}


def files(part: str) -> list[Path]:
    folder = PACKAGE / part
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]


def imports(path: Path) -> set[str]:
    """Absolute names of all modules that the file imports anywhere, functions included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively: write the whole name"
            assert node.module is not None
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def parts_imported(path: Path) -> set[str]:
    """A name of the package itself, such as `regard.build`, counts as the highest part that `import regard` loads."""
    names = [[*name.split("."), ""] for name in imports(path)]
    parts = {name[1] for name in names if name[0] == "regard"}
    return {part if part in own_parts() else "mixers" for part in parts}


def own_parts() -> list[str]:
    entries = (
        p.stem for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()
    )
    return sorted(set(entries) - {"__init__"})


def test_every_part_has_its_place():
    assert set(own_parts()) <= set(MAY_IMPORT) | FRONT


@pytest.mark.parametrize("part", [part for part in own_parts() if part in MAY_IMPORT])
def test_imports_run_one_way(part):
    for path in files(part):
        wrong = parts_imported(path) - MAY_IMPORT[part] - {part}
        assert not wrong, f"{path.relative_to(PACKAGE)} imports {sorted(wrong)}"


def test_nothing_imports_the_front():
    for part in set(own_parts()) - FRONT:
        for path in files(part):
            assert not parts_imported(path) & FRONT, (
                f"{path.relative_to(PACKAGE)} imports the front"
            )


def test_recipes_are_imported_by_the_front_alone():
    inside = PACKAGE / "recipes"
    for path in PACKAGE.rglob("*.py"):
        if inside not in path.parents and "recipes" in parts_imported(path):
            assert path.relative_to(PACKAGE).parts[0] in FRONT


def test_oracles_import_torch_alone():
    for path in files("reference"):
        tops = {name.split(".")[0] for name in imports(path)} - set(sys.stdlib_module_names)
        assert tops <= {"torch", "regard"}, f"{path.name} imports {sorted(tops)}"


def test_core_imports_torch_and_shapes_alone():
    for path in files("core"):
        tops = {name.split(".")[0] for name in imports(path)} - set(sys.stdlib_module_names)
        assert tops <= INSIDE_CORE | {"regard"}, f"{path.name} imports {sorted(tops)}"


def test_the_checks_see_a_wrong_import(tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text("def late():\n    from regard.models import Block\n    import regard.cli\n")
    assert parts_imported(path) == {"models", "cli"}


def test_import_regard_is_light():
    found = subprocess.run(
        [sys.executable, "-c", "import regard, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert "regard.mixers" in found
    assert not [name for name in SLOW if name in found]
    later = {"models", "tasks", "train", "arena", "recipes", "cli", "reference", "testing"}
    assert not [
        name
        for name in found
        if name.split(".")[:1] == ["regard"] and set(name.split(".")[1:2]) & later
    ]


def test_doctor_knows_what_the_package_needs():
    from regard.cli.doctor import REQUIRED

    project = (PACKAGE.parent / "pyproject.toml").read_text()
    for name, oldest in REQUIRED.items():
        assert f'"{name}>={oldest}"' in project
