"""bfloat16 beside float32: python benchmarks/half.py [--only local linear] [--length 4096] [--json]

Each mechanism of the table of peers at its width, forward pass and training step, both types interleaved in one run. On
a CPU with bfloat16 matrix units at least twice the speed is the aim where matrix products dominate; without such units
there is nothing to gain, and the line under the table says what the matrix product itself gains here. "least gains": the
same of the operations that no form can do without, alone and at their own shapes (`bounds.py`): small products,
exponentials and gathered rows gain less than large products, and where those gain less than the aim it is out of reach.
"""

import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

import torch
import tyro
from bounds import bound
from ours import calling
from pairs import Case, Pair, Pass, chosen
from rounds import medians
from tyro.conf import FlagCreatePairsOff

from regard.arena.matrix_product import MatrixProduct
from regard.arena.provenance import provenance
from regard.cli.printing import print_json, print_table
from regard.core import RegardError

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def main(
    only: tuple[str, ...] = (),
    length: int = 4096,
    passes: tuple[Pass, ...] = ("forward", "train"),
    rounds: int = 5,
    json_: Annotated[FlagCreatePairsOff[bool], tyro.conf.arg(name="json")] = False,
) -> int:
    """Time every mechanism in both types.

    Args:
        only: names of mechanisms; all of the table by default
        length: tokens
        passes: a forward pass, a forward and backward pass
        rounds: of every entry
        json_: print data instead of a table
    """
    rows = [
        _row(pair, kind, length, rounds)
        for pair in chosen(only)
        for kind in passes
        if length <= pair.most.get(kind, length)
    ]
    products = {name: MatrixProduct("cpu", dtype) for name, dtype in TYPES.items()}
    product = medians({name: of.sample for name, of in products.items()}, rounds)
    gain = product["float32"] / product["bfloat16"]
    if json_:
        print_json({"rows": rows, "matrix_product_gain": gain, "origin": asdict(provenance())})
        return 0
    print_table(rows)
    origin = provenance()
    print(f"a matrix product gains {gain:.1f}; {origin.device}; allocator {origin.allocator}")
    print(f"{origin.versions}; {origin.commit}")
    return 0


def _row(pair: Pair, kind: Pass, length: int, rounds: int) -> dict[str, Any]:
    case = Case(length=length, causal=pair.causal)
    calls = {name: calling(pair, case, kind, dtype) for name, dtype in TYPES.items()}
    least = {f"least {name}": _least(pair, case, kind, dtype) for name, dtype in TYPES.items()}
    found = medians(calls | {name: call for name, call in least.items() if call}, rounds)
    few = found.get("least float32")
    return {
        "pair": pair.name,
        "pass": kind,
        "float32 ms": found["float32"],
        "bfloat16 ms": found["bfloat16"],
        "gain": found["float32"] / found["bfloat16"],
        "aim": 2.0,
        "least gains": few and few / found["least bfloat16"],
    }


def _least(pair: Pair, case: Case, kind: Pass, dtype: torch.dtype) -> Callable[[], None] | None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        parts = bound(pair, case, kind)
    finally:
        torch.set_default_dtype(before)

    def call() -> None:
        for part in parts or ():
            part.run(kind)

    return call if parts else None


if __name__ == "__main__":
    try:
        sys.exit(tyro.cli(main))
    except RegardError as error:
        print(f"half: {error}", file=sys.stderr)
        sys.exit(2)
