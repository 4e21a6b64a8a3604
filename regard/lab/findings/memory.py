"""memory: what a segment's memory gains, and what pre-training in any order gains beside masks and beside none."""

from dataclasses import dataclass
from typing import Any, ClassVar

from regard.lab.data.windows import MASKED_VOCABULARY
from regard.lab.findings.finding import Claim, Entry, Finding, above, below, named
from regard.lab.findings.small import brief
from regard.lab.recipes import Run
from regard.lab.tasks import Spam, StdlibBytes, StdlibMasked, StdlibPermuted
from regard.models import (
    ClassifierConfig,
    MaskedLanguageModelConfig,
    TransformerXLConfig,
    XLNetClassifierConfig,
    XLNetConfig,
)

SEGMENTS, TUNED = "a memory of earlier segments", "fine-tuned on e-mails, spam or not"
NONE, SHORT, LONG = "memory of one", "memory of 32", "memory of 128"
LENGTH = 64  # bytes, in pre-training
PLAIN_SCRATCH, MASKED = "softmax from scratch", "softmax after masked bytes"
SCRATCH, PERMUTED, REDRAWN, SPANS, BOTH = (
    "XLNet from scratch",
    "XLNet, fixed orders",
    "XLNet, orders redrawn",
    "XLNet, redrawn spans",
    "XLNet, redrawn, both directions",
)
_ORDERS: dict[str, dict[str, Any]] = {
    PERMUTED: {},
    REDRAWN: {"redraw": True},
    SPANS: {"redraw": True, "spans": True},
    BOTH: {"redraw": True, "both_directions": True},
}


@dataclass(frozen=True, kw_only=True)
class Permuted(StdlibPermuted):
    """With room for the mask among its tokens, so that the embedding fits a classifier of bytes."""

    name: ClassVar[str] = "stdlib_permuted_with_mask"
    vocab_size = MASKED_VOCABULARY


def _segments(label: str, mem_len: int) -> Entry:
    def run() -> Run:
        task = StdlibBytes(length=160, valid_size=50, test_size=150)
        model = TransformerXLConfig(
            vocab_size=task.vocab_size,
            dim=48,
            num_heads=4,
            num_layers=2,
            hidden_dim=96,
            segment_len=32,
            mem_len=mem_len,
            norm_first=True,
        )
        return Run(task=task, model=model, train=brief(steps=1500, batch_size=8, lr=4e-3))

    return Entry(label, run, part=SEGMENTS)


_SIZES: dict[str, Any] = {"dim": 48, "num_heads": 4, "num_layers": 2, "hidden_dim": 96}
_PRETRAIN = brief(steps=1000, batch_size=16, lr=3e-3)
_TUNE = brief(steps=240, batch_size=16, lr=2e-3, bucket=8)


def _before(label: str) -> Run | None:
    """The pre-training, where there is one."""
    sizes: dict[str, Any] = {"length": LENGTH, "valid_size": 50, "test_size": 50}
    if label == MASKED:
        task = StdlibMasked(**sizes)
        model = MaskedLanguageModelConfig(**task.facts, max_len=128, **_SIZES)
        return Run(task=task, model=model, train=_PRETRAIN)
    if label not in _ORDERS:
        return None
    permuted = Permuted(**sizes, **_ORDERS[label])
    xlnet = XLNetConfig(**permuted.facts, num_predict=LENGTH // permuted.k, **_SIZES)
    return Run(task=permuted, model=xlnet, train=_PRETRAIN)


def _tuned(label: str) -> Entry:
    def run() -> Run:
        task = Spam(length=128)
        model: Any = (
            ClassifierConfig(**task.facts, max_len=128, **_SIZES)
            if label in (PLAIN_SCRATCH, MASKED)
            else XLNetClassifierConfig(**task.facts, **_SIZES)
        )
        return Run(task=task, model=model, train=_TUNE)

    first = _before(label)
    return Entry(label, run, before=None if first is None else lambda: first, part=TUNED)


MEMORY = Finding(
    name="memory",
    about="What does a memory of earlier segments gain, and what does pre-training in any order gain?",
    entries=(
        _segments(NONE, 1),
        _segments(SHORT, 32),
        _segments(LONG, 128),
        *map(_tuned, (PLAIN_SCRATCH, MASKED, SCRATCH, *_ORDERS)),
    ),
    claims=(
        Claim(
            "A memory of the segment before is better than none, for which one byte stands here.",
            "Dai et al. 2019, arXiv 1901.02860",
            (below(named(SEGMENTS, SHORT), named(SEGMENTS, NONE)),),
        ),
        Claim(
            "A longer memory is better.",
            "Dai et al. 2019, arXiv 1901.02860",
            (below(named(SEGMENTS, LONG), named(SEGMENTS, SHORT)),),
        ),
        Claim(
            "Pre-training helps, by masks and by orders.",
            "Devlin et al. 2018, arXiv 1810.04805; Yang et al. 2019, arXiv 1906.08237",
            (
                above(named(TUNED, MASKED), named(TUNED, PLAIN_SCRATCH)),
                above(named(TUNED, REDRAWN), named(TUNED, SCRATCH)),
            ),
        ),
        Claim(
            "Fine-tuned, XLNet is better than what was trained on masks.",
            "Yang et al. 2019, arXiv 1906.08237",
            (above(named(TUNED, REDRAWN), named(TUNED, MASKED)),),
        ),
        Claim(
            "Another order at every visit is better than one order for each text.",
            "Yang et al. 2019, arXiv 1906.08237, which draws orders anew",
            (above(named(TUNED, REDRAWN), named(TUNED, PERMUTED)),),
        ),
        Claim(
            "Targets in spans are better than single ones.",
            "Yang et al. 2019, arXiv 1906.08237: without spans slightly worse",
            (above(named(TUNED, SPANS), named(TUNED, REDRAWN)),),
        ),
        Claim(
            "Reading half of each batch backwards is better than reading forwards alone.",
            "Yang et al. 2019, arXiv 1906.08237: without it slightly worse",
            (above(named(TUNED, BOTH), named(TUNED, REDRAWN)),),
        ),
    ),
    seeds=tuple(range(6)),
    method=(
        "Bits a byte of Python's own source, 160 bytes read in segments of 32. Then two blocks of width 48 that read Python's source, "
        "64 bytes at a time, in 1,000 batches of 16, and after that 128 bytes of 240 batches of e-mails."
    ),
    limits=(
        "Pre-training is short, on other text than the task's, and of bytes; the papers' is of days and of sub-words.",
        "XLNet and the softmax model have unlike positions and unlike summaries: their scores from scratch are beside them.",
    ),
)
