"""norms: where the norm stands, with and without warm-up, and which norm it is."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from regard.lab.findings.finding import Claim, Entry, Finding, above, near
from regard.lab.findings.small import UNMIXED, brief, short_listops, unmixed
from regard.lab.recipes import Run
from regard.models import Classifier, ClassifierConfig
from regard.nn.norm import LayerNorm

LAYERS, STEPS, RATE = 6, 600, 1e-2


class BatchNorm(nn.BatchNorm1d):
    """x [B T D]: mean and variance of each channel over all tokens of the batch, padding among them."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(0, -2)).view_as(x)


@dataclass(frozen=True, kw_only=True)
class BatchNormConfig(ClassifierConfig):
    """A classifier whose every LayerNorm is a batch norm: no entry of NORMS, because padding would change its results."""

    name: ClassVar[str] = "batch_norm_classifier"

    def build(self) -> Classifier:
        model = super().build()
        for module in list(model.modules()):
            for name, child in module.named_children():
                if isinstance(child, LayerNorm):
                    setattr(module, name, BatchNorm(self.dim))
        return model


def _run(
    config: type[ClassifierConfig] = ClassifierConfig, warmup: float = 0.2, **model: Any
) -> Run:
    task = short_listops()
    return Run(
        task=task,
        model=config(
            **task.facts,
            max_len=task.max_len,
            dim=48,
            num_heads=4,
            **{"num_layers": LAYERS, "hidden_dim": 96, **model},
        ),
        train=brief(steps=STEPS, batch_size=32, lr=RATE, warmup=warmup),
    )


_SEEN = (above("pre-norm, warm-up", UNMIXED, by=0.05),)

NORMS = Finding(
    name="norms",
    about="Does it matter where the norm stands, whether the rate warms up, and which norm it is?",
    entries=(
        Entry("pre-norm, warm-up", lambda: _run()),
        Entry("pre-norm, no warm-up", lambda: _run(warmup=0.0)),
        Entry("post-norm, warm-up", lambda: _run(norm_first=False)),
        Entry("post-norm, no warm-up", lambda: _run(norm_first=False, warmup=0.0)),
        Entry("RMSNorm, pre-norm", lambda: _run(norm="rms")),
        Entry("ScaleNorm, pre-norm", lambda: _run(norm="scale")),
        Entry("BatchNorm, pre-norm", lambda: _run(BatchNormConfig)),
        Entry(UNMIXED, lambda: _run(**unmixed())),
    ),
    claims=(
        Claim(
            "Post-norm needs a warm-up: it is worse without.",
            "Xiong et al. 2020, arXiv 2002.04745",
            (above("post-norm, warm-up", "post-norm, no warm-up"),),
        ),
        Claim(
            "Pre-norm needs none: it loses less than 0.03 without.",
            "Xiong et al. 2020, arXiv 2002.04745",
            (above("pre-norm, no warm-up", "pre-norm, warm-up", by=-0.03),),
            when=_SEEN,
        ),
        Claim(
            "Without a warm-up, pre-norm is better than post-norm.",
            "Xiong et al. 2020, arXiv 2002.04745",
            (above("pre-norm, no warm-up", "post-norm, no warm-up"),),
        ),
        Claim(
            "RMSNorm is as good as LayerNorm, within 0.03.",
            "Zhang and Sennrich 2019, arXiv 1910.07467",
            (near("RMSNorm, pre-norm", "pre-norm, warm-up", within=0.03),),
            when=_SEEN,
        ),
        Claim(
            "ScaleNorm is as good as LayerNorm, within 0.03.",
            "Nguyen and Salazar 2019, arXiv 1910.05895",
            (near("ScaleNorm, pre-norm", "pre-norm, warm-up", within=0.03),),
            when=_SEEN,
        ),
        Claim(
            "Batch norm is worse than LayerNorm on sequences of unlike lengths.",
            "Vaswani et al. 2017 as the articles read it",
            (above("pre-norm, warm-up", "BatchNorm, pre-norm"),),
        ),
    ),
    seeds=tuple(range(4)),
    method=(
        "Nested list expressions of 6 to 39 tokens, padded to the longest of their batch, classified by their value; "
        f"{LAYERS} blocks of width 48, {STEPS} steps, and the same rate for all, {RATE:g}: a high one, since that is where the "
        "articles see a difference. Four blocks at 0.003 showed none. "
        f"{UNMIXED.capitalize()}: pre-norm, warm-up, and each token attends to itself alone."
    ),
    limits=(
        f"{LAYERS} narrow layers and {STEPS} steps: the articles' models are wider, and instability grows with depth.",
        "One learning rate for all: a lower one may mend what breaks here.",
    ),
)
