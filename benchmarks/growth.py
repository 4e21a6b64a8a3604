"""Peak memory as sequences grow: python benchmarks/growth.py [--only local linear] [--lengths 16384 65536] [--json]

Every mechanism of the table of peers whose time is not declared to grow as T^2, at its width there (8 heads of 64, batch 1,
float32, CPU): what one forward pass, or training step, adds to the high-water mark of a process of its own, results and
gradients included. growth: the exponent of memory over length between the first and the last, 1 where it is proportional.
"""

import math
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Annotated, Any

import torch
import tyro
from memory import peak_growth
from ours import build_ours, given
from pairs import PAIRS, Case, Pair, Pass, chosen
from program import run, show
from torch import Tensor, nn
from tyro.conf import FlagCreatePairsOff

import regard
from regard.core import RegardError


def main(
    only: tuple[str, ...] = (),
    lengths: tuple[int, ...] = (16384, 65536),
    passes: tuple[Pass, ...] = ("forward", "train"),
    json_: Annotated[FlagCreatePairsOff[bool], tyro.conf.arg(name="json")] = False,
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
    found = [_alone(pair.name, length, kind) for length in lengths]
    row: dict[str, Any] = {"pair": pair.name, "pass": kind}
    row |= {f"{length} MiB": peak / 2**20 for length, peak in zip(lengths, found, strict=True)}
    longer = math.log(lengths[-1] / lengths[0])
    row["growth"] = math.log(found[-1] / found[0]) / longer if longer else None
    print(row, file=sys.stderr, flush=True)
    return row


def _alone(name: str, length: int, kind: Pass) -> int:
    """In a process of its own, which no earlier call has left memory in."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as one:
        return one.submit(_peak, name, length, kind).result()


def _peak(name: str, length: int, kind: Pass) -> int:
    pair = next(pair for pair in PAIRS if pair.name == name)
    torch.manual_seed(0)
    # a short call first: what is loaded once is not the mechanism's
    for tokens in (256, length):
        case = Case(length=tokens, causal=pair.causal)
        module, inputs = build_ours(pair, case).train(kind == "train"), given(pair, case)
        found = peak_growth(lambda: _step(module, inputs, kind))  # noqa: B023
    if found is None:
        raise RegardError("this system does not tell a process's peak memory")
    return found


def _step(module: nn.Module, inputs: list[Tensor], kind: Pass) -> None:
    if kind == "train":
        module(*inputs).sum().backward()
    else:
        with torch.no_grad():
            module(*inputs)


if __name__ == "__main__":
    run(main)
