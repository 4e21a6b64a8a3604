"""Are heads alike that are left alone, and does pushing them apart make the model better?

regard arena questions.disagreement:QUESTION --rows docs/findings/rows/disagreement.jsonl

About 13 core-minutes, estimated: 72 runs of 9 s, and a sixth more where rates are widened.
"""

from functools import partial
from statistics import fmean
from typing import Any

import torch

from questions.heads import COLUMN, SHELLS
from regard.lab import Claim, Column, Entry, Question, below, reaches
from regard.lab.data.records import Examples
from regard.lab.experiment.question import Fitted
from regard.models import LanguageModelConfig
from regard.nn.disagreement import Kind, disagreement
from regard.nn.recorded import recorded


class Apart(torch.autograd.Function):
    """x as it is; its gradient brings that of a term of the loss along."""

    @staticmethod
    def forward(ctx, x, term):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g, torch.ones_like(g.sum())


class Disagreeing(LanguageModelConfig):
    """The model whose heads are pushed apart: the loss is less by the disagreement of each layer."""

    name = "disagreeing"
    kind: Kind = "output"

    def build(self) -> Any:
        model = super().build()
        for mixer in model.encoder.mixers:
            mixer.register_forward_hook(
                partial(_pushed, self.kind, self.num_layers), with_kwargs=True
            )
        return model


def _pushed(
    kind: Kind, layers: int, mixer: Any, args: Any, kwargs: Any, y: torch.Tensor
) -> torch.Tensor | None:
    if not mixer.training:
        return None
    seen = mixer.observe(args[0], mask=kwargs["mask"], weights=kind == "position")
    return Apart.apply(y, -disagreement(seen, kind) / layers)


def _apart(kind: Kind, column: Column) -> Disagreeing:
    task, shell = column.task, column.shell
    sizes: Any = dict(dim=shell.dim, num_heads=shell.num_heads, num_layers=shell.num_layers)
    return Disagreeing(
        kind=kind, max_len=task.max_len, position=shell.position, **sizes, **task.facts
    )


@torch.no_grad()
def alike(fitted: Fitted) -> dict[str, float]:
    """Mean cosine of the outputs of two heads, each with itself too: from 1/H to 1."""
    assert isinstance(fitted.splits.test, Examples)
    tokens, _ = fitted.splits.test.rows()
    with recorded(fitted.model.eval()) as calls:
        fitted.model(tokens[:32])
    seen = [
        m.observe(x, mask=mask, weights=False)
        for _, _, m, x, _, mask, _ in calls
        if hasattr(m, "num_heads")
    ]
    return {"cosine of heads": fmean(-float(disagreement(one)) for one in seen)} if seen else {}


LI = "Li et al. 2018, arXiv 1810.10183"
KINDS: tuple[Kind, ...] = ("subspace", "position", "output")

# fmt: off
QUESTION = Question(
    name="disagreement",
    about="Do four heads become alike on bytes of Python, and what do three terms that push them apart gain?",
    kind="comparison",
    entries=(
        Entry(mixer="softmax"),
        *(Entry(title=f"disagreement, {kind}", make=partial(_apart, kind)) for kind in KINDS),
    ),
    vary=(COLUMN,),
    shells=SHELLS,
    rates=(2e-3, 4e-3, 8e-3),
    measures=alike,
    claims=(
        Claim(
            text="Each of the three disagreement terms makes the model better.", source=LI, smallest=0.01,
            expected=tuple(below(f"disagreement, {kind}", "softmax") for kind in KINDS),
        ),
        Claim(
            text="The output term makes the heads' outputs less alike.", source=LI, smallest=0.02,
            expected=(below("disagreement, output", "softmax", measure="cosine of heads"),),
        ),
        Claim(
            text="Heads that are left alone are alike: a mean cosine above 0.5, where 0.25 is the least for four.", source="a survey article, of BERT's layer 3",
            smallest=0.05, expected=(reaches("softmax", 0.5, measure="cosine of heads"),),
        ),
    ),
    limits=(
        "Two layers of width 64 and 300,000 bytes. Each term has the weight 1 of the paper, in nats beside the loss; another weight may do otherwise.",
        "The terms are of training alone: the bits that are compared hold none of them. Their gradient comes in through the layer's output, as that of a term of the loss.",
        "Cosines are of two heads' outputs of a token, each with itself too, and their intervals of seeds alone: BERT's heads are trained for longer, and have three times as many.",
    ),
)
