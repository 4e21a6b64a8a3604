"""What does a memory of earlier segments gain where the answer lies two segments back?

regard arena questions.memory:QUESTION --rows docs/findings/rows/memory.jsonl

About 38 core-minutes, estimated: 96 runs of 20 s, and a sixth more where rates are widened.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.lab import Claim, Column, Entry, Question, Shell, above
from regard.lab.experiment.question import Fitted
from regard.lab.tasks.fingerprint import TwoBack
from regard.lab.train.short import Short, answered
from regard.models import TransformerXLConfig, XLNetConfig

SEGMENT, NEAR = TwoBack.segment, TwoBack.near


class SegmentsConfig(XLNetConfig):
    """XLNet that reads in segments, all of it context: each token sees its segment and the memory."""

    name = "xlnet_in_segments"
    kinds = ("language_model",)

    def build(self) -> Any:
        return Segments(super().build())


class Segments(nn.Module):
    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, *, valid: Tensor | None = None) -> Tensor:
        state, found = self.model.initial_state(len(tokens)), []
        for part in tokens.split(SEGMENT, 1):
            logits, state = self.model.extend(part, state, order=torch.full_like(part, -1))
            found.append(logits)
        return torch.cat(found, 1)


# fmt: off
def _sizes(column: Column) -> dict[str, Any]:
    shell = column.shell
    sizes = dict(dim=shell.dim, num_heads=shell.num_heads, num_layers=shell.num_layers)
    return sizes | column.task.facts | dict(shell.fields)


def _xl(segment: int, memory: int, column: Column) -> TransformerXLConfig:
    return TransformerXLConfig(segment_len=segment, mem_len=memory, norm_first=True, hidden_dim=256, **_sizes(column))


def _xlnet(memory: int, column: Column) -> SegmentsConfig:
    return SegmentsConfig(mem_len=memory, hidden_dim=256, **_sizes(column))


def by_distance(fitted: Fitted) -> dict[str, float]:
    """Accuracy of what is asked of this segment, and of the one two back."""
    _, right = answered(fitted.model, fitted.splits.test)
    return {name: float(part.float().mean()) for name, part in (("this segment", right[:, :NEAR]), ("two back", right[:, NEAR:]))}


def _title(name: str, memory: int) -> str:
    return f"{name}, memory of {memory}" if memory > 1 else f"{name}, no memory"


MEMORIES = (1, SEGMENT, 2 * SEGMENT)
DAI = "Dai et al. 2019, arXiv 1901.02860"
TWO: dict[str, Any] = {"measure": "two back"}
SHELLS = tuple(Shell(fields={"feed_forward": one}) for one in ("relu", "gelu"))

QUESTION = Question(
    name="memory",
    about="Is what was said two segments ago found in a memory, of one segment or of two?",
    kind="comparison",
    entries=(
        Entry(title="whole row", make=partial(_xl, 3 * SEGMENT, 1)),
        *(
            Entry(title=_title("Transformer-XL", memory), make=partial(_xl, SEGMENT, memory)) for memory in MEMORIES
        ),
        *(
            Entry(title=_title("XLNet", memory), make=partial(_xlnet, memory)) for memory in MEMORIES[::2]
        ),
    ),
    vary=(
        Column(name="two back", task=TwoBack(train_size=12800), train=Short(steps=400), shell=SHELLS[0]),
    ),
    shells=SHELLS,
    rates=(3e-3, 6e-3, 12e-3),
    baseline="whole row",
    measures=by_distance,
    factors=("size",),
    claims=(
        Claim(
            text="A memory of the segment before is better than none, for which one byte stands here.", source=DAI, smallest=0.05,
            expected=(above("Transformer-XL, memory of 32", "Transformer-XL, no memory", by=0.1, **TWO),),
        ),
        Claim(text="A longer memory is better.", source=DAI, smallest=0.05, expected=(above("Transformer-XL, memory of 32", "Transformer-XL, memory of 16", **TWO),)),
        Claim(
            text="N layers with a memory of M tokens see N M tokens back: two layers and one segment reach two segments.", source=f"{DAI}, section 3.2", smallest=0.05,
            expected=(above("Transformer-XL, memory of 16", "Transformer-XL, no memory", by=0.1, **TWO),),
        ),
        Claim(
            text="XLNet finds with a memory what it does not without.", source="Yang et al. 2019, arXiv 1906.08237, section 2.4", smallest=0.05,
            expected=(above("XLNet, memory of 32", "XLNet, no memory", by=0.1, **TWO),),
        ),
    ),
    limits=(
        "Sizes are those of the paper's layers, which XLNet's segment and content parts exceed; within Transformer-XL they are equal. Each is compared with itself.",
        "No gradient enters a memory, so that nothing teaches a layer to carry on what a later segment will ask: reach in tokens is no reach in what is learned.",
        "A third of the questions need no memory, so that a model without one still passes the lines; verdicts are of the others alone, and their intervals of seeds alone.",
        "Two layers of width 64, segments of 16 tokens: bytes of text, where a memory gains hundredths of a bit, need more than this budget.",
        "Pre-training by masks and by orders, spans and reversed halves are not asked.",
    ),
)
