"""Are RMSNorm and ScaleNorm as good as LayerNorm, and what does batch norm do to rows longer than those of training?

regard arena questions.norm_kinds:QUESTION --rows docs/findings/rows/norm_kinds.jsonl

About 8 core-minutes, estimated: 72 runs of 6 s, and a sixth more where rates are widened.
"""

from typing import Any

from torch import Tensor, nn

from questions._models import ReaderConfig
from questions.recall import TASK, beyond
from regard.lab import Claim, Column, Entry, Question, Shell, above, near
from regard.lab.train.short import Short
from regard.nn.norm import LayerNorm

SHELLS = tuple(
    Shell(dim=32, position="none", fields={"feed_forward": one}) for one in ("gelu", "swiglu")
)


class BatchNorm(nn.BatchNorm1d):
    """Of each channel over all tokens of the batch; in evaluation by the running means of training."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(0, -2)).view_as(x)


class BatchNormed(ReaderConfig):
    """The model with a batch norm in the place of each LayerNorm."""

    name = "batch_normed"

    def build(self) -> Any:
        model = super().build()
        for module in list(model.modules()):
            for name, child in module.named_children():
                if isinstance(child, LayerNorm):
                    setattr(module, name, BatchNorm(self.dim))
        return model


def _batch(column: Column) -> BatchNormed:
    task, shell = column.task, column.shell
    facts = {
        name: getattr(task, name) for name in ("vocab_size", "max_len", "num_classes", "causal")
    }
    return BatchNormed(
        dim=shell.dim,
        num_heads=shell.num_heads,
        num_layers=shell.num_layers,
        position=shell.position,
        **facts,
        **shell.fields,
    )


# fmt: off
QUESTION = Question(
    name="norm_kinds",
    about="Which norm serves, on rows as long as those of training, and on longer ones?",
    kind="comparison",
    entries=(
        Entry(mixer="softmax", title="LayerNorm"),
        Entry(mixer="softmax", title="RMSNorm", model={"norm": "rms"}),
        Entry(mixer="softmax", title="ScaleNorm", model={"norm": "scale"}),
        Entry(title="BatchNorm", make=_batch),
    ),
    vary=(
        Column(name="16 pairs", task=TASK, train=Short(steps=500), shell=SHELLS[0], model=ReaderConfig),
    ),
    shells=SHELLS,
    rates=(5e-3, 1e-2, 2e-2),
    baseline="LayerNorm",
    measures=beyond,
    factors=("norm",),
    claims=(
        Claim(
            text="RMSNorm is as good as LayerNorm, within 0.03.", source="Zhang and Sennrich 2019, arXiv 1910.07467", smallest=0.01,
            expected=(near("RMSNorm", "LayerNorm", within=0.03), near("RMSNorm", "LayerNorm", within=0.03, measure="64 pairs")),
        ),
        Claim(
            text="ScaleNorm is as good as LayerNorm, within 0.03.", source="Nguyen and Salazar 2019, arXiv 1910.05895", smallest=0.01,
            expected=(near("ScaleNorm", "LayerNorm", within=0.03), near("ScaleNorm", "LayerNorm", within=0.03, measure="64 pairs")),
        ),
        Claim(
            text="Batch norm is worse than LayerNorm on sequences of unlike lengths.", source="Vaswani et al. 2017 as the articles read it", smallest=0.02,
            expected=tuple(above("LayerNorm", "BatchNorm", measure=f"{n} pairs") for n in (32, 64)),
        ),
    ),
    limits=(
        "All rows of training have 32 tokens, those of the measures 64 and 128: what padding does to the statistics of a batch is not asked.",
        "No positions are added, since looking up needs none and no norm should be charged for those it never saw.",
        "Two layers of width 32, batches of 32 rows: small batches, for which batch norm is known to be worse, are not asked.",
    ),
)
