"""Names, for pytest, of the test cases that the changes since main can reach: `python tests/quick.py [COMMIT]`.

A test file is chosen if it, or a module that it imports directly or through others, has changed; of the laws, the
cases of the mixers that are so reached. `import regard` by itself reaches regard/__init__.py only: a test that builds a
mixer by its name is not chosen when that mixer changes, unless it has its name; the mixer's laws are. `make check` runs
all cases.
"""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
LAWS = "tests/laws/test_laws.py"


def imported(path: Path, root: Path) -> set[str]:
    """Files of the package and the tests that this one imports, functions included; not through `regard` itself."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    found = set()
    for name in names:
        place = root.joinpath(*name.split("."))
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if name.split(".")[0] in ("regard", "tests") and file.is_file():
                found.add(str(file.relative_to(root)))
    return found


@cache
def importers(root: Path) -> dict[str, set[str]]:
    """File -> the files that import it."""
    found: dict[str, set[str]] = {}
    for path in (*(root / "regard").rglob("*.py"), *(root / "tests").rglob("*.py")):
        name = str(path.relative_to(root))
        for file in imported(path, root) if name != "regard/__init__.py" else ():
            found.setdefault(file, set()).add(name)
    return found


def chosen(changed: set[str], root: Path = ROOT) -> tuple[list[str], list[str]]:
    """Test files other than the laws over the catalogue, and the mixers whose laws are run."""
    hit, ahead = set(changed), list(changed)
    while ahead:
        new = importers(root).get(ahead.pop(), set()) - hit
        hit |= new
        ahead += new
    laws_changed = any(name.startswith(("regard/testing/", "tests/laws/")) for name in changed)
    mixers = [
        path.stem.rstrip("_")
        for path in sorted((root / "regard/mixers").glob("*.py"))
        if not path.stem.startswith("_")
        and path.stem != "build"
        and (laws_changed or hit & {f"regard/mixers/{path.name}", f"regard/reference/{path.name}"})
    ]
    own = {f"tests/mixers/test_{name}.py" for name in mixers}
    hit |= {name for name in own if (root / name).exists()}
    tests = [name for name in sorted(hit) if Path(name).name.startswith("test_") and name != LAWS]
    return tests, mixers


def changed_since(commit: str) -> set[str]:
    def listed(*command: str) -> list[str]:
        done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.splitlines() if done.returncode == 0 else []

    base = (listed("merge-base", "HEAD", commit) or ["HEAD"])[0]
    new = listed("ls-files", "--others", "--exclude-standard")
    return {*listed("diff", "--name-only", base), *new}


def main(commit: str = "main") -> int:
    tests, mixers = chosen(changed_since(commit))
    print(f"{len(tests)} test files, and the laws of {len(mixers)} mixers", flush=True)
    runs = [tests] if tests else []
    if mixers:
        runs.append([LAWS, "-k", " or ".join(f"[{name}-" for name in mixers)])
    codes = [
        subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", "2", *run], cwd=ROOT).returncode
        for run in runs
    ]
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
