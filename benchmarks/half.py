"""bfloat16 beside float32: python benchmarks/half.py [--only local linear] [--length 4096] [--json]

Forward pass and training step of each mechanism of `pairs.py`, both types interleaved in one run. On a CPU with bfloat16 matrix units the
aim is twice the speed, where matrix products dominate; without such units there is nothing to gain, and the first line says what
a large matrix product gains here. least gains: the gain of the operations that no form can do without, alone and at their own
shapes (`bounds.py`); where those gain less than the aim, the aim is out of reach.
"""

from collections.abc import Callable
from typing import Any

import torch
from bounds import bound
from measuring import Json, medians, run, show
from ours import calling
from pairs import Case, Pair, Pass, feasible

from regard.lab.arena.matrix_product import MatrixProduct

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def main(
    only: tuple[str, ...] = (),
    length: int = 4096,
    passes: tuple[Pass, ...] = ("forward", "train"),
    rounds: int = 5,
    json_: Json = False,
) -> int:
    """Time every mechanism in both types.

    Args:
        only: names of mechanisms; all of `pairs.py` by default
        length: tokens
        passes: a forward pass, a forward and backward pass
        rounds: of every entry
        json_: print data instead of a table
    """
    rows = [_row(pair, kind, length, rounds) for pair, kind in feasible(only, passes, length)]
    products = {name: MatrixProduct("cpu", dtype) for name, dtype in TYPES.items()}
    product = medians({name: one.sample for name, one in products.items()}, rounds)
    gain = product["float32"] / product["bfloat16"]
    if not json_:
        print(f"a matrix product gains {gain:.1f}")
    return show(rows, as_json=json_, matrix_product_gain=gain)


def _row(pair: Pair, kind: Pass, length: int, rounds: int) -> dict[str, Any]:
    case = Case(length=length, causal=pair.causal)
    calls = {name: calling(pair, case, kind, dtype) for name, dtype in TYPES.items()}
    least = {f"least {name}": _least(pair, case, kind, dtype) for name, dtype in TYPES.items()}
    found = medians(calls | {name: call for name, call in least.items() if call}, rounds)
    fewest = found.get("least float32")
    return {
        "pair": pair.name,
        "pass": kind,
        "float32 ms": found["float32"],
        "bfloat16 ms": found["bfloat16"],
        "gain": found["float32"] / found["bfloat16"],
        "aim": 2.0,
        "least gains": fewest and fewest / found["least bfloat16"],
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
    run(main)
