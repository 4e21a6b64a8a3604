"""Pairs measured at one length in one process: every entry is called once in each round, in turn."""

import gc
import statistics
import sys
import time
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import torch
from measuring import affordable, median_interval, peak_growth, rotated
from ours import build_ours, forward_cost, given
from pairs import PAIRS, TOO_LONG, Case, Pair, Pass, Peer
from torch import nn

from regard.lab.experiment.speed import MatrixProduct

CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
BACKWARD = 3  # a training step needs three times the operations of its forward pass


@dataclass(frozen=True)
class Order:
    """What one process measures. clock: a key of CLOCKS."""

    pairs: tuple[str, ...]
    length: int
    passes: tuple[Pass, ...]
    rounds: int
    clock: str


class Entry:
    """One side of a pair in one pass, and its times."""

    def __init__(self, module: nn.Module, pair: Pair, case: Case, kind: Pass, order: Order):
        self.module, self.kind = module.train(kind == "train"), kind
        self.rounds, self.clock = order.rounds, CLOCKS[order.clock]
        self.inputs = given(pair, case)
        self.times: list[float] = []
        self.peak_bytes: int | None = None
        with torch.no_grad():
            self.gradient = torch.randn_like(module(*self.inputs))
        self.warm_up()

    def warm_up(self) -> None:
        took: list[float] = []
        self.peak_bytes = peak_growth(lambda: took.append(self.sample()))
        self.rounds = affordable(self.rounds, took[0])

    def sample(self) -> float:
        self.module.train(self.kind == "train")
        self.clear()
        began = self.clock()
        if self.kind == "train":
            self.module(*self.inputs).backward(self.gradient)
        else:
            with torch.no_grad():
                self.module(*self.inputs)
        seconds = self.clock() - began
        self.clear()
        return seconds

    def clear(self) -> None:
        for leaf in (*self.inputs, *self.module.parameters()):
            leaf.grad = None

    @property
    def summary(self) -> dict[str, Any]:
        low, median, high = statistics.quantiles(self.times, n=4, method="inclusive")
        return {
            "ms": 1e3 * median,
            "low_ms": 1e3 * low,
            "high_ms": 1e3 * high,
            "peak_bytes": self.peak_bytes,
            "rounds": len(self.times),
        }


class Comparison:
    """A pair in one pass: our entry, its peers' entries, and the matrix product timed beside them."""

    def __init__(self, pair: Pair, case: Case, kind: Pass, order: Order, product: MatrixProduct):
        self.pair, self.case, self.kind = pair, case, kind
        torch.manual_seed(0)
        ours = build_ours(pair, case)
        self.flops, self.projections = forward_cost(ours, given(pair, case))
        self.ours = Entry(ours, pair, case, kind, order)
        self.product, self.product_times = product, list[float]()
        self.peers: dict[str, Entry] = {}
        self.absent: dict[str, str] = {}
        for peer in pair.peers:
            why = _absence(peer, case, kind)
            try:
                if why is None:
                    self.peers[peer.name] = Entry(peer.build(case), pair, case, kind, order)
            except Exception as error:  # in a package: reported, and the others are measured
                why = f"fails here: {type(error).__name__}: {error}".partition("\n")[0]
            if why is not None:
                self.absent[peer.name] = why

    def round(self, number: int) -> None:
        self.product_times.append(self.product.sample())
        for entry in rotated([self.ours, *self.peers.values()], number):
            if number < entry.rounds:
                entry.times.append(entry.sample())

    def _beside(self, peer: Entry) -> dict[str, Any]:
        """The peer's times, and its time over ours in each round: neighbours in time share the machine's moods."""
        ratios = [theirs / ours for theirs, ours in zip(peer.times, self.ours.times, strict=False)]
        low, high = median_interval(ratios)
        middle = statistics.median(ratios)
        return peer.summary | {"ratio": middle, "ratio_low": low, "ratio_high": high}

    def row(self) -> dict[str, Any]:
        rate = self.product.flops / statistics.median(self.product_times)
        peers = [
            {
                "peer": peer.name,
                "package": peer.package,
                "version": _version(peer.package),
                "function": peer.function,
                "absent": self.absent.get(peer.name),
                **(self._beside(self.peers[peer.name]) if peer.name in self.peers else {}),
            }
            for peer in self.pair.peers
        ]
        times = BACKWARD if self.kind == "train" else 1
        return {
            "pair": self.pair.name,
            "mixer": self.pair.mixer,
            "scope": self.pair.scope,
            "causal": self.pair.causal,
            "pass": self.kind,
            "length": self.case.length,
            "options": {name: repr(v) for name, v in self.pair.options(self.case).items()},
            "ours": self.ours.summary,
            "peers": peers,
            "matrix_rate": rate,
            "flops": times * self.flops,
            "projection_flops": times * self.projections,
        }


def _version(package: str | None) -> str | None:
    if package is None:
        return torch.__version__
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _absence(peer: Peer, case: Case, kind: Pass) -> str | None:
    if _version(peer.package) is None:
        return "not installed"
    if case.length > peer.most.get(kind, case.length):
        return TOO_LONG
    return None


def rows(order: Order) -> list[dict[str, Any]]:
    """One row for each pair and pass."""
    with redirect_stdout(sys.stderr):  # some packages print
        return [comparison.row() for comparison in _measured(order)]


def _measured(order: Order) -> list[Comparison]:
    length = order.length
    product = MatrixProduct("cpu", torch.float32, clock=CLOCKS[order.clock])
    comparisons = []
    for pair in PAIRS:
        for kind in order.passes:
            if pair.name in order.pairs and length <= pair.most.get(kind, length):
                case = Case(length=length, causal=pair.causal)
                print(f"{length}  {kind}  {pair.name}", file=sys.stderr, flush=True)
                comparisons.append(Comparison(pair, case, kind, order, product))
    gc.collect()
    gc.disable()
    for number in range(order.rounds):
        for comparison in comparisons:
            comparison.round(number)
        print(f"{length}  round {number + 1} of {order.rounds}", file=sys.stderr, flush=True)
    return comparisons
