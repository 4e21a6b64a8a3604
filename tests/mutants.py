"""Mutation testing of the kernels: `python -m tests.mutants [--count 200] [--seed 0] [--minutes 40] [--only FILE] [--out FILE]`.

A mutant is one small change of one file of regard/functional: another comparison, sum, sign or number, a condition turned
around, an assignment in place left out. It is killed if a law of a mixer that uses the file fails, or a test that
imports the file, or if it does not end. What survives is listed with its line: it either changes nothing but speed, or
no test would notice that mistake. The draw comes from the seed; --minutes stops between mutants, with the counts so far.

Left out: code that runs on other devices alone, and the module that chooses sizes, which change speed and no result.
"""

import argparse
import ast
import copy
import importlib.abc
import importlib.util
import io
import json
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.quick import ROOT, importers

KERNELS = ROOT / "regard/functional"
LEFT_OUT = {"shared/implementation.py"}
FIRST = ("reference", "map", "streaming", "long")
LATER = (
    *("padding", "causality", "lengths", "batch", "derivative", "second_derivative", "transforms"),
    *("low_precision", "autocast", "randomness", "complexity"),
)
SECONDS = 180  # of a processor, for one mutant; the slowest unchanged file takes a third of it
BYTES = 6 << 30

COMPARISONS: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPERATORS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.MatMult: ast.Mult,
}


@dataclass(frozen=True)
class Mutant:
    file: str
    line: int
    before: str
    after: str
    place: tuple[int, int]  # number of the node in the file, and of its change


@dataclass(frozen=True)
class Fate:
    mutant: Mutant
    killed_by: str | None
    seconds: float


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What one node is changed into."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            yield ast.Compare(node.left, [COMPARISONS[type(op)]()], node.comparators)
        case ast.BinOp(op=op) if type(op) in OPERATORS:
            yield ast.BinOp(node.left, OPERATORS[type(op)](), node.right)
        case ast.AugAssign():
            yield ast.Pass()
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name))) if name.endswith("_"):
            yield ast.Pass()
        case ast.UnaryOp(op=ast.USub() | ast.Not()):
            yield node.operand
        case ast.BoolOp():
            yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.IfExp():
            yield ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
        case ast.If():
            yield ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield ast.Constant(node.value + 1)


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node that computes: no annotation, no default of a dataclass, nothing inside a `raise`."""
    yield tree
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.Raise):
                yield from nodes(child)


def mutants(path: Path) -> list[Mutant]:
    name = str(path.relative_to(ROOT))
    return [
        Mutant(name, node.lineno, ast.unparse(node)[:120], ast.unparse(new)[:120], (i, j))  # type: ignore[attr-defined]
        for i, node in enumerate(nodes(ast.parse(path.read_text())))
        for j, new in enumerate(changes(node))
    ]


def source(mutant: Mutant) -> ast.Module:
    """The file's tree with the change in it."""
    tree = ast.parse((ROOT / mutant.file).read_text())
    old = list(nodes(tree))[mutant.place[0]]
    new = list(changes(copy.deepcopy(old)))[mutant.place[1]]

    class Change(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return ast.copy_location(new, old) if node is old else self.generic_visit(node)

    return ast.fix_missing_locations(Change().visit(tree))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one file as the mutant has it."""

    def __init__(self, mutant: Mutant):
        self.mutant = mutant
        self.name = mutant.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, ROOT / self.mutant.file, loader=self)

    def exec_module(self, module) -> None:
        exec(compile(source(self.mutant), self.mutant.file, "exec"), module.__dict__)


def users(file: str) -> tuple[list[str], list[str]]:
    """Mixers that use the file, nearest first, and the test files that import it themselves."""
    found, ahead = [file], [file]
    for name in ahead:
        new = sorted(importers(ROOT).get(name, set()) - set(found))
        found += new
        ahead += new
    mixers = [Path(name).stem.rstrip("_") for name in found if name.startswith("regard/mixers/")]
    own = sorted(importers(ROOT).get(file, set()))
    return mixers, [name for name in own if Path(name).name.startswith("test_")]


def killer(mutant: Mutant) -> str | None:
    """The first law or test that fails on the mutant, in this process, which has not imported the package yet."""
    sys.meta_path.insert(0, _Finder(mutant))
    mixers, tests = users(mutant.file)
    try:
        from regard.testing import LawError, check_mixer
        from tests.laws.catalogue import VARIANTS, factory

        order = {name: n for n, name in enumerate(mixers)}
        variants = sorted((v for v in VARIANTS if v[0] in order), key=lambda v: order[v[0]])
        near = set(mixers[:3])
        for law in (*FIRST, *LATER):
            for name, variant, options in variants:
                if (law in LATER and name not in near) or (law == "long" and variant != "default"):
                    continue
                try:
                    check_mixer(factory(name, options), law)
                except LawError:
                    return f"law {law} of {name} {variant}"
    except Exception as error:  # the package does not even load, or a mixer cannot be built
        return f"{type(error).__name__} on the way"
    if not tests:
        return None
    import pytest

    quiet = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--no-header", "--tb=no"]
    return f"tests {' '.join(tests)}" if pytest.main([*tests, *quiet]) else None


def fate(mutant: Mutant) -> Fate:
    """What becomes of one mutant, in a process of its own."""
    began = time.monotonic()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(4 * SECONDS)
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            found = killer(mutant)
        os.write(writing, json.dumps(found).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    killed = json.loads(said) if status == 0 and said else f"ended by signal {status & 127}"
    return Fate(mutant, killed, time.monotonic() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--only", type=Path, help="one file of regard/functional")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    import torch

    torch.set_num_threads(1)  # a process with other threads cannot be forked safely
    files = [p for p in KERNELS.rglob("*.py") if str(p.relative_to(KERNELS)) not in LEFT_OUT]
    if asked.only is not None:
        files = [asked.only.resolve()]
    every = [mutant for path in sorted(files) for mutant in mutants(path)]
    drawn = random.Random(asked.seed).sample(every, min(asked.count, len(every)))
    end, fates = time.monotonic() + 60 * asked.minutes, list[Fate]()
    for mutant in drawn:
        if time.monotonic() > end:
            break
        fates.append(fate(mutant))
        if fates[-1].killed_by is None:
            print(
                f"survives: {mutant.file}:{mutant.line}  {mutant.before} -> {mutant.after}",
                flush=True,
            )
    killed = sum(one.killed_by is not None for one in fates)
    share = f"{killed / len(fates):.1%}" if fates else "none"
    print(f"{len(every)} mutants, {len(fates)} drawn and run, {killed} killed ({share})")
    if asked.out is not None:
        from tests.conftest import origin  # the package is not imported before the forks

        counts = {"mutants": len(every), "run": len(fates), "killed": killed, "seed": asked.seed}
        counts |= origin()
        asked.out.write_text(
            json.dumps({**counts, "fates": [asdict(one) for one in fates]}, indent=1)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
