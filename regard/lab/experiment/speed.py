"""Speed: passes of several mechanisms at one length, interleaved with fused softmax attention in the same run.

What is timed is a block, of mechanism and feed-forward layer, or the bare layer: two GAU layers stand beside one of
softmax and its feed-forward, at equal parameters.

A round calls every entry once, so that a machine that slows down slows all of them; medians and quartiles are over
rounds. A large matrix product is timed in the same rounds: the rate beside which each mixer's own is read. Operations are
counted on the eager form, whichever implementation is timed, and so is peak memory on a CPU; on CUDA the allocator reports it.
"""

import gc
import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from time import perf_counter
from typing import Any

import torch

from regard.core import Above0, Declared, Mask, OptionError
from regard.functional.rows import recorded
from regard.lab.experiment.entry import Entry
from regard.lab.experiment.passes import (  # fmt: skip
    DECODE_STEPS,
    PASSES,
    STREAMING,
    equal_block,
    state_bytes,
    tokens,
)
from regard.lab.experiment.provenance import provenance
from regard.lab.experiment.row import Facts, Row
from regard.lab.experiment.stored import SETTING, Pass, Type, Unit
from regard.testing.counting import count

MOST_ROUNDS = 50
FAST_ROUND = 1.0  # seconds; below it 5 rounds are the least, above it 3
RATE_ROUNDS = 5  # in which the matrix product is timed
SIDE = {"cpu": 2048, "cuda": 8192}  # of the matrices


class Setting(Declared):
    """One measurement's setting. `length`: tokens processed, or for decode already in the state."""

    kind: Pass
    length: int
    batch: int = 1  # sequences
    dim: int = 256
    num_heads: int = 4
    dtype: Type = "float32"
    device: str = "cpu"
    causal: bool | None = None  # bidirectional where a mixer can be; prefill and decode are causal
    seconds: Above0 = 8.0  # spent on rounds, all entries together
    unit: Unit = "layer"

    def __post_init__(self):
        if self.kind in STREAMING and self.causal is False:
            raise OptionError(f"{self.kind} is causal: causal=False cannot be timed. Leave it out.")
        if self.device.startswith("meta"):
            raise OptionError("nothing can be timed on meta, which computes nothing")

    @property
    def name(self) -> str:
        """The name of its column: the pass, its length, and what differs from the rule."""
        told = (
            f"{key}={getattr(self, key)}"
            for key in ("batch", "dtype", "device", "causal", "unit")
            if getattr(self, key) != _RULE[key]
        )
        return ", ".join([f"{self.kind} {self.length}", *told])

    @property
    def facts(self) -> Facts:
        """The column as the question's record has it."""
        return {"name": self.name, "kind": "timed", "setting": self}

    @property
    def max_len(self) -> int:
        """The longest that a mixer must serve: decoding goes beyond `length`."""
        return self.length + (DECODE_STEPS + 1 if self.kind == "decode" else 0)


_RULE = {one.name: one.default for one in fields(Setting)} | {"unit": "block"}


def obstacle(choice: Entry, setting: Setting) -> str | None:
    """Why this pass cannot be timed for this mixer at this size, or None."""
    if setting.kind in STREAMING:
        needed = "streaming"
    elif setting.causal is None:
        return None
    else:
        needed = "causal" if setting.causal else "bidirectional"
    return choice.refusal(choice.sketch(dim=setting.dim, num_heads=setting.num_heads), needed)


def measure(choices: Sequence[Entry], setting: Setting) -> list[Row]:
    """One row for each choice, in order; they are of no question and no cell yet.

    Each is timed beside softmax of the same causality: the setting's, or else bidirectional where the mixer can be so
    and the pass is not a streaming one. Raises UnsupportedError where a choice cannot do the pass: `obstacle` says so before.
    """
    timings = [_Timing(choice, setting) for choice in choices]
    softmax = {t.causal: t for t in timings if t.choice.is_softmax}
    every = timings.copy()
    for causal in {t.causal for t in timings} - softmax.keys():
        softmax[causal] = _Timing(Entry(mixer="softmax"), replace(setting, causal=causal))
        every.append(softmax[causal])
    rounds, rate = _run_rounds(every, setting)
    return [timing.row(softmax[timing.causal], rounds, rate) for timing in timings]


class _Timing:
    """A mixer ready to be timed, and its times so far."""

    def __init__(self, choice: Entry, setting: Setting):
        torch.manual_seed(0)
        self.choice = choice
        self.setting = setting
        self.causal = setting.causal
        if self.causal is None:
            both = not choice.refusal(choice.sketch(), "bidirectional")
            self.causal = setting.kind in STREAMING or not both
        unit = _built(choice, setting, self.causal)
        self.parameters = sum(p.numel() for p in unit.parameters() if p.requires_grad)
        unit = unit.to(device=setting.device, dtype=getattr(torch, setting.dtype)).eval()
        self.times = list[float]()
        with self.mode():
            self.call = PASSES[setting.kind](unit, setting, Mask(causal=self.causal))
            self.peak_bytes, self.flops = self._cost()
        self.state_bytes = _state_bytes(choice, setting)

    def mode(self) -> AbstractContextManager[Any]:
        return torch.set_grad_enabled(self.setting.kind == "train")

    def sample(self) -> float:
        """Seconds of one pass."""
        with self.mode():
            prepared = self.call.prepare()
            synchronize(self.setting.device)
            began = perf_counter()
            self.call.run(prepared)
            synchronize(self.setting.device)
            return (perf_counter() - began) / self.call.repeats

    def _cost(self) -> tuple[int, int]:
        """Peak bytes and operations of one pass; doubles as the first warm-up."""
        prepared = self.call.prepare()
        with recorded(plain_instead=True) as used:
            counted = count(lambda: self.call.run(prepared))
        self.impl = ", ".join(sorted(used)) or "plain"
        peak = counted.peak_bytes
        if torch.device(self.setting.device).type == "cuda":
            prepared = self.call.prepare()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            self.call.run(prepared)
            synchronize(self.setting.device)
            peak = torch.cuda.max_memory_allocated() - before
        return peak + self.call.held_bytes, counted.flops // self.call.repeats

    def row(self, softmax: "_Timing", rounds: int, rate: float) -> Row:
        choice = self.choice
        setting = self.setting
        low, median, high = statistics.quantiles(self.times, method="inclusive")
        values = {
            "ms": 1e3 * median, "low_ms": 1e3 * low, "high_ms": 1e3 * high, "baseline_ms": 1e3 * statistics.median(softmax.times),
            "rounds": rounds, "matrix_rate": rate, "peak_bytes": self.peak_bytes, "baseline_parameters": softmax.parameters,
        }  # fmt: skip
        if self.state_bytes is not None:
            values["state_bytes"] = self.state_bytes
        return Row(
            kind="timed", question="", column=setting.name, cell="", **choice.facts, causal=self.causal, parameters=self.parameters, flops=self.flops,
            values=values,
            setting={name: getattr(setting, name) for name in SETTING} | {"impl": self.impl},
            provenance=provenance(device=setting.device, dtype=setting.dtype, of=choice.commit),
        )  # fmt: skip


def _state_bytes(choice: Entry, setting: Setting) -> int | None:
    """Bytes of one row's state after `length` tokens, which may be fewer than there is room for; None where the mechanism does not stream."""
    mixer = _built(choice, replace(setting, unit="layer"), True)
    mixer = mixer.to(getattr(torch, setting.dtype)).eval()
    if choice.refusal(mixer, "streaming"):
        return None
    one = replace(setting, batch=1, device="cpu")
    with torch.no_grad():
        return state_bytes(mixer.extend(tokens(one, setting.length), mixer.initial_state(1))[1])


def _built(choice: Entry, setting: Setting, causal: bool) -> Any:
    facts = {"dim": setting.dim, "num_heads": setting.num_heads, "max_len": setting.max_len}
    if setting.unit == "layer":
        return choice.build(**facts)
    return equal_block(choice, **facts, causal=causal).build()


def _run_rounds(entries: list[_Timing], setting: Setting) -> tuple[int, float]:
    """Fills the entries' times; the number of rounds, and the rate of the matrix product."""
    product = MatrixProduct(setting.device, getattr(torch, setting.dtype))
    product_times = []
    product.sample()  # warms up
    for entry in entries:
        entry.sample()
    gc.collect()
    gc.disable()
    try:
        began = perf_counter()
        rounds = 0
        elapsed = 0.0
        while rounds < (5 if elapsed < FAST_ROUND * max(rounds, 1) else 3) or (
            elapsed < setting.seconds and rounds < MOST_ROUNDS
        ):
            first = rounds % len(entries)  # no entry always follows the same one
            for entry in entries[first:] + entries[:first]:
                entry.times.append(entry.sample())
            if rounds < RATE_ROUNDS:
                product_times.append(product.sample())
            rounds += 1
            elapsed = perf_counter() - began
        return rounds, product.flops / statistics.median(product_times)
    finally:
        gc.enable()


class MatrixProduct:
    """One product of two square matrices into a ready output; sampled in the rounds that it is compared with."""

    def __init__(
        self, device: str, dtype: torch.dtype, *, clock: Callable[[], float] = perf_counter
    ):
        self.device = torch.device(device)
        self.clock = clock
        slow = self.device.type == "cpu" and dtype == torch.float16  # in software on most
        side = 512 if slow else SIDE.get(self.device.type, 2048)
        self.flops = 2 * side**3
        self.a, self.b = (
            torch.randn(side, side, device=self.device).to(dtype).mul_(side**-0.5) for _ in "ab"
        )
        self.out = torch.empty_like(self.a)

    def sample(self) -> float:
        """Seconds of one product."""
        synchronize(self.device)
        began = self.clock()
        torch.mm(self.a, self.b, out=self.out)
        synchronize(self.device)
        return self.clock() - began


def synchronize(device: str | torch.device) -> None:
    """Wait for what the device still does; a CPU is never behind."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
