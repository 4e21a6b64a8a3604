"""Training of entries on a small machine: every entry of a finding sees the same batches."""

import statistics
import time
from functools import cache
from typing import Any, TypeVar

import torch

from regard.lab.tasks import Data, ListOps, StdlibBytes, Task
from regard.lab.train import TrainConfig
from regard.models import LanguageModelConfig, StackConfig

Config = TypeVar("Config", bound=StackConfig)


def brief(*, steps: int, batch_size: int, lr: float, **more: Any) -> TrainConfig:
    """No early stopping, four looks at the validation split, one checkpoint kept."""
    every = max(1, steps // 4)
    bookkeeping: dict[str, Any] = dict(
        eval_every=every, checkpoint_every=every, keep=1, log_dir=None
    )
    return TrainConfig(steps=steps, batch_size=batch_size, lr=lr, **bookkeeping | more)


def short_listops() -> ListOps:
    """Expressions of 6 to 39 tokens, at most three deep."""
    return ListOps(
        min_length=5, max_length=40, max_depth=3, train_size=8000, valid_size=500, test_size=2000
    )


def bytes_of_python(length: int = 64) -> StdlibBytes:
    """The next byte of Python's own source."""
    return StdlibBytes(length=length, valid_size=100, test_size=300)


STEPS = 1000  # of training on `bytes_of_python`


def early(steps: int = STEPS) -> str:
    """The limits of findings on `bytes_of_python`, as a page says them."""
    return (
        f"{steps:,} steps are the beginning of training: the models know which byte follows which and little of what came before, "
        "which is why claims of likeness wait for softmax attention to beat a model that mixes nothing by 0.1 bits. "
        f"`--tokens {20_000 * steps}` trains twenty times as long."
    )


def unequal(*told: str) -> str:
    """Reason to withdraw a claim on `bytes_of_python`; each of `told` gives an entry's difference from `positions`' rotary softmax."""
    return (
        "unequal positions: softmax attention has only sinusoids here. The suite `positions` trained it with rotary positions on the "
        f"same data, at the same rate and from the same seeds: {'; '.join(told)}"
    )


SINUSOIDS = (
    "Softmax attention has only sinusoids here, and is 0.337 bits better with rotary positions (the suite `positions`). Claims that "
    "this would decide otherwise are withdrawn; random tables, which are behind here, would be farther behind."
)
"""The limits of pages that compare softmax attention with mechanisms whose weights depend on the place, as a page says them."""


def byte_model(
    mixer: str = "softmax",
    *,
    length: int = 64,
    kind: type[Config] = LanguageModelConfig,  # type: ignore[assignment]
    **more: Any,
) -> Config:
    """Two blocks of width 48 for `bytes_of_python`; options of the mixer in `mixer_options`."""
    sizes: dict[str, Any] = dict(
        vocab_size=bytes_of_python().vocab_size,
        max_len=length,
        dim=48,
        num_heads=4,
        num_layers=2,
        mixer=mixer,
    )
    return kind(**sizes | more)


TIMED = "Times were taken while the machine did other work, in turns with softmax attention's: factors hold better than milliseconds."
"""The limits of `step_times`, as a page says them."""

UNMIXED = "no mixing"
"""Label of the entry whose mixer leaves every token alone: what a mechanism must beat before it is compared with others."""


def unmixed(num_heads: int = 4) -> dict[str, Any]:
    """Fields of a stack in which each head copies its own token's value."""
    return {"mixer": "fixed_patterns", "mixer_options": {"patterns": ("current",) * num_heads}}


@cache
def test_split(task: Task) -> Data:
    """Loaded once for all entries that are tested on it."""
    return task.load().test


def step_times(
    model: StackConfig, beside: StackConfig, *, length: int, seed: int, rounds: int = 5
) -> dict[str, float]:
    """Milliseconds of one training step on a row of `length` tokens, forward and backward, timed in turns; medians."""
    torch.manual_seed(seed)
    tokens = torch.randint(1, model.vocab_size, (1, length))
    built = [config.build().train() for config in (model, beside)]
    times: list[list[float]] = [[], []]
    for turn in range(rounds + 1):
        for one, kept in zip(built, times, strict=True):
            began = time.perf_counter()
            one(tokens).float().square().mean().backward()
            if turn:  # the first warms up
                kept.append(1e3 * (time.perf_counter() - began))
    ours, theirs = map(statistics.median, times)
    return {"ms a step": ours, "ms of softmax": theirs, "times softmax's": ours / theirs}
