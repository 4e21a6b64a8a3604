"""Two checkouts of Regard beside each other: python benchmarks/versions.py ../older --lengths 1024 4096 [--only local] [--json]

Every mechanism with its default options, as a layer (8 heads of 64, batch 1, float32), in both orders of time where it has them. One process for each
checkout, which call by turns, so that both meet the same minutes of the machine. ratio: time of this checkout over that of the other, the median of
the rounds, and bounds that hold the true median in nine of ten cases; above 1, this one is slower.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import Json, median_interval, run, show

HERE = Path(__file__).parents[1]
WORKER = """
import json, sys, time
import torch, regard
entries, out = {}, sys.stdout
sys.stdout = sys.stderr

def entry(name, causal, length):
    torch.manual_seed(0)
    layer = regard.build(name, dim=512, num_heads=8, max_len=length)
    x = torch.randn(1, length, 512, requires_grad=True)
    return layer, x, regard.Mask(causal=causal), torch.randn(1, length, 512)

def seconds(kind, name, causal, length):
    key = name, causal, length
    if key not in entries:
        entries.clear()
        entries[key] = entry(*key)
    layer, x, mask, gradient = entries[key]
    layer.train(kind == "train")
    layer.zero_grad()
    x.grad = None
    began = time.perf_counter()
    with torch.set_grad_enabled(kind == "train"):
        y = layer(x, mask=mask)
        if kind == "train":
            y.backward(gradient)
    return time.perf_counter() - began

for line in sys.stdin:
    try:
        told = seconds(*json.loads(line))
    except ValueError as refusal:
        told = str(refusal)
    print(json.dumps(told), file=out, flush=True)
"""


class Checkout:
    """A process that times mechanisms of the checkout in this folder."""

    def __init__(self, folder: Path):
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seconds(self, *case: Any) -> float | str:
        """The time of one call, or why the mechanism refuses it."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps(case), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


def main(
    other: Path,
    /,
    only: tuple[str, ...] = (),
    lengths: tuple[int, ...] = (1024, 4096),
    rounds: int = 7,
    json_: Json = False,
) -> int:
    """Time this checkout and another one by turns.

    Args:
        other: folder of the other checkout
        only: names of mechanisms; all of them by default
        lengths: tokens
        rounds: of every mechanism and pass
        json_: print data instead of a table
    """
    return show(list(_rows(other, only, lengths, rounds)), as_json=json_)


def _rows(
    other: Path, only: tuple[str, ...], lengths: tuple[int, ...], rounds: int
) -> Iterator[dict[str, Any]]:
    import regard

    sides = Checkout(HERE), Checkout(other)
    for length in lengths:
        for name in only or regard.MIXERS.names():
            for causal in (False, True):
                for kind in ("forward", "train"):
                    case = kind, name, causal, length
                    refused = [
                        told for side in sides if isinstance(told := side.seconds(*case), str)
                    ]
                    if refused:
                        continue
                    times = [[float(side.seconds(*case)) for side in sides] for _ in range(rounds)]
                    ratios = [mine / theirs for mine, theirs in times]
                    low, high = median_interval(ratios)
                    yield {
                        "mixer": name,
                        "causal": causal,
                        "pass": kind,
                        "length": length,
                        "ms": 1e3 * statistics.median(mine for mine, _ in times),
                        "ratio": statistics.median(ratios),
                        "from": low,
                        "to": high,
                    }
                    print(case, f"{statistics.median(ratios):.3f}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    run(main)
