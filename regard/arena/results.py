"""The typed rows that the arena produces, the ledger keeps, and the report draws."""

from dataclasses import dataclass, field
from typing import Any, Literal

Pass = Literal["forward", "train", "decode"]


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where a number comes from."""

    commit: str  # of the working tree, with "+changes" when it is not clean; "unknown" outside a checkout
    command: str
    device: str  # as a person would name it: "AMD EPYC 7B13, 2 threads"
    threads: int
    dtype: str
    versions: dict[str, str]  # python, torch, regard
    started: str  # ISO 8601, UTC


@dataclass(frozen=True, kw_only=True)
class Trained:
    """One model trained on one task."""

    task: str
    mixer: str
    seed: int
    options: dict[str, Any]
    metric: str
    value: float  # of the test split, at the best validation checkpoint
    better: Literal["higher", "lower"]
    parameters: int
    steps: int
    tokens: int  # seen in training
    seconds: float
    tokens_per_second: float
    data_sha256: str
    provenance: Provenance
    curve: list[tuple[int, float]] = field(default_factory=list)  # (step, validation metric)


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One pass of one mixer at one length, beside fused softmax attention in the same run, interleaved."""

    mixer: str
    options: dict[str, Any]
    kind: Pass
    length: int  # for decode: tokens already in the state
    batch: int
    dim: int
    num_heads: int
    causal: bool
    median_ms: float
    low_ms: float  # quartiles
    high_ms: float
    baseline_ms: float  # median of softmax (same causality) in the same interleaved run
    peak_bytes: int  # live tensor bytes at the highest point, beyond parameters and input
    rounds: int
    provenance: Provenance

    @property
    def ratio(self) -> float:
        """Time relative to fused softmax attention: below 1 is faster."""
        return self.median_ms / self.baseline_ms


@dataclass(frozen=True, kw_only=True)
class NotRun:
    """A pair that cannot or may not run, with its reason."""

    mixer: str
    subject: str  # a task's name, or a Pass
    reason: str


Result = Trained | Timed | NotRun
