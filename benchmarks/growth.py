"""Peak memory as sequences grow: python benchmarks/growth.py [--only local linear] [--lengths 16384 65536] [--json]

Memory that one forward pass, or one training step, adds to the high-water mark of a process of its own, results and gradients
included: 8 heads of 64, batch 1, float32, CPU, every mechanism of `pairs.py` whose time is not declared to grow as T^2.
growth: the exponent of memory over length between the first length and the last; 1 where memory is proportional.
"""

import math
import sys
from typing import Any

import torch
from measuring import Json, in_a_process, peak_growth, run, show
from ours import build_ours, given
from pairs import PAIRS, Case, Pair, Pass, chosen
from torch import Tensor, nn

import regard
from regard.core import RegardError


def main(
    only: tuple[str, ...] = (),
    lengths: tuple[int, ...] = (16384, 65536),
    passes: tuple[Pass, ...] = ("forward", "train"),
    json_: Json = False,
) -> int:
    """Measure the memory of one call at each length.

    Args:
        only: names of mechanisms; all whose time does not grow as T^2 by default
        lengths: tokens, shortest first
        passes: a forward pass, a forward and backward pass
        json_: print data instead of a table
    """
    some = [pair for pair in chosen(only) if only or _is_linear(pair)]
    rows = [_row(pair, kind, lengths) for pair in some for kind in passes]
    return show(rows, as_json=json_)


def _is_linear(pair: Pair) -> bool:
    terms = regard.MIXERS[pair.mixer].capabilities.time.split(" + ")
    return all("T^2" not in term or "/" in term for term in terms)


def _row(pair: Pair, kind: Pass, lengths: tuple[int, ...]) -> dict[str, Any]:
    found = [in_a_process(_peak, pair.name, length, kind) for length in lengths]
    row: dict[str, Any] = {"pair": pair.name, "pass": kind}
    row |= {f"{length} MiB": peak / 2**20 for length, peak in zip(lengths, found, strict=True)}
    longer = math.log(lengths[-1] / lengths[0])
    row["growth"] = math.log(found[-1] / found[0]) / longer if longer else None
    print(row, file=sys.stderr, flush=True)
    return row


def _peak(name: str, length: int, kind: Pass) -> int:
    pair = next(pair for pair in PAIRS if pair.name == name)
    torch.manual_seed(0)
    # a short call first, so that what is loaded once is not counted
    for tokens in (256, length):
        case = Case(length=tokens, causal=pair.causal)
        module, inputs = build_ours(pair, case).train(kind == "train"), given(pair, case)
        found = peak_growth(lambda: _step(module, inputs, kind))  # noqa: B023
    if found is None:
        raise RegardError("this system does not report a process's peak memory")
    return found


def _step(module: nn.Module, inputs: list[Tensor], kind: Pass) -> None:
    if kind == "train":
        module(*inputs).sum().backward()
    else:
        with torch.no_grad():
            module(*inputs)


if __name__ == "__main__":
    run(main)
