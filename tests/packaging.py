"""The wheel and the sdist, installed as a user installs them: `make package`.

Both are built and hold the same files of the package. The wheel goes into an environment with nothing in it, where the README's code and
the command line run; the extras are resolved there beside it. With --oldest, the requirements at their lower bounds are printed instead.
"""

import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DIST, EMPTY = ROOT / "build/dist", ROOT / ".venv/empty"
RESOLVED = ("lab", "hf", "ray", "fla", "docs")
"""Extras that are resolved beside the wheel; `dev` is what the tests run in, and `peers` pins what benchmarks time."""


def oldest(requirements: list[str]) -> list[str]:
    """`name>=1.2` as `name==1.2`."""
    return [requirement.replace(">=", "==") for requirement in requirements]


def run(*command: object, cwd: Path = ROOT) -> str:
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def build() -> tuple[Path, Path]:
    """The wheel and the sdist."""
    for old in DIST.glob("*"):
        old.unlink()
    run(sys.executable, "-m", "hatchling", "build", "-d", DIST)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, sdist


def check_files(wheel: Path, sdist: Path) -> None:
    tracked = set(run("git", "ls-files", "regard").split())
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("regard/")}
    with tarfile.open(sdist) as tar:
        source = {name.partition("/")[2] for name in tar.getnames()}
    assert packed == tracked, sorted(packed ^ tracked)
    assert tracked <= source, sorted(tracked - source)
    assert {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff"} <= source


def install(wheel: Path) -> Path:
    """The Python of an environment that holds the wheel and what it needs."""
    run(sys.executable, "-m", "venv", "--clear", EMPTY)
    python = EMPTY / "bin/python"
    pins = ("-c", ROOT / "constraints.txt")
    quietly = ("--quiet", "--disable-pip-version-check", "--no-compile")
    run(python, "-m", "pip", "install", *quietly, wheel, *pins)
    for extra in RESOLVED:
        wanted = f"{wheel}[{extra}]"
        resolved = run(python, "-m", "pip", "install", "--dry-run", wanted, *pins)
        print(f"{extra}: {resolved.strip().splitlines()[-1][:120]}")
    return python


def use(python: Path) -> None:
    """First steps, away from the clone."""
    code = block((ROOT / "README.md").read_text(), "quickstart")
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        run(python, "-c", code, cwd=here)
        regard = python.parent / "regard"
        assert run(regard, "--version", cwd=here) == f"regard {version()}\n"
        assert "softmax" in run(regard, "ls", "mixers", cwd=here)
        assert "passed" in run(regard, "laws", "linear", "--law", "batch", cwd=here)
        without = subprocess.run([regard, "arena"], cwd=here, capture_output=True, text=True)
        assert without.returncode == 1 and "pip install 'regard[lab]'" in without.stderr


def block(text: str, name: str) -> str:
    """The Python code under the marker of this name."""
    (code,) = re.findall(rf"<!-- {name} -->\n```python\n(.*?)```", text, re.S)
    return code


def version() -> str:
    (found,) = re.findall(r'__version__ = "(.*)"', (ROOT / "regard/__init__.py").read_text())
    return found


def main() -> None:
    if "--oldest" in sys.argv:
        print(*oldest(PROJECT["dependencies"]))
        return
    wheel, sdist = build()
    check_files(wheel, sdist)
    use(install(wheel))
    print(f"{wheel.name} and {sdist.name}: built, installed and used")


if __name__ == "__main__":
    main()
