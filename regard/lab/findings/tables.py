"""tables: AutoInt beside its rivals on a census, and what each part of DIN is worth, on planted histories and on MovieLens."""

from typing import Any

from regard.lab.findings.finding import Claim, Entry, Finding, above, named, near, reaches
from regard.lab.findings.small import brief
from regard.lab.recipes import Run
from regard.lab.tasks import Adult, MovieLens, PlantedHistories
from regard.models import (
    AutoIntConfig,
    CompressedInteractionConfig,
    CrossNetworkConfig,
    DINConfig,
    FactorizationMachineConfig,
    LogisticRegressionConfig,
    ModelConfig,
)

STEPS = 1000
CENSUS, PLANTED, FILMS = "census (Adult)", "planted histories", "MovieLens"
AUTOINT = "AutoInt"
_RIVALS: dict[str, ModelConfig] = {
    "logistic regression": LogisticRegressionConfig(num_tasks=2),
    "factorisation machine": FactorizationMachineConfig(num_tasks=2, dim=8),
    "cross network": CrossNetworkConfig(num_tasks=2, dim=8),
    "DCN": CrossNetworkConfig(num_tasks=2, dim=8, hidden_dims=(32,)),
    "compressed interaction": CompressedInteractionConfig(num_tasks=2, dim=8, maps=(16, 16)),
    "xDeepFM": CompressedInteractionConfig(num_tasks=2, dim=8, maps=(16, 16), hidden_dims=(32,)),
    AUTOINT: AutoIntConfig(num_tasks=2, dim=8, head_dim=8, num_layers=2),
    "AutoInt+": AutoIntConfig(num_tasks=2, dim=8, head_dim=8, num_layers=2, hidden_dims=(32,)),
}
MEAN, DIN, PLAIN, PRELU, L2 = (
    "mean of the history",
    "DIN",
    "DIN without the outer product",
    "DIN with PReLU",
    "DIN with mini-batch L2",
)
_INTERESTS: dict[str, dict[str, Any]] = {
    MEAN: {"pool": "mean"},
    DIN: {},
    PLAIN: {"pool_options": {"interaction": "none"}},
    "DIN with the elementwise product": {"pool_options": {"interaction": "elementwise"}},
    PRELU: {"pool_options": {"activation": "prelu"}, "activation": "prelu"},
    L2: {},
}


def _rival(label: str) -> Entry:
    def run() -> Run:
        train = brief(steps=STEPS, batch_size=256, lr=3e-3)
        return Run(task=Adult(), model=_RIVALS[label], train=train)

    return Entry(label, run, part=CENSUS)


def _interest(part: str, label: str) -> Entry:
    def run() -> Run:
        l2 = {"batch_l2": 0.1} if label == L2 else {}
        films = part == FILMS
        model = DINConfig(
            history=("history",),
            dim=8,
            hidden_dims=(32, 16) if films else (16,),
            **_INTERESTS[label],
        )
        train = brief(
            steps=STEPS,
            batch_size=256,
            lr=3e-3 if films else 1e-2,
            weight_decay=0.0,
            **l2,
        )
        task = MovieLens(history=30, targets=5) if films else PlantedHistories()
        return Run(task=task, model=model, train=train)

    return Entry(label, run, part=part)


TABLES = Finding(
    name="tables",
    about="Is attention over fields worth it, and what is each part of DIN worth?",
    entries=(
        *map(_rival, _RIVALS),
        *(_interest(PLANTED, label) for label in _INTERESTS),
        *(_interest(FILMS, label) for label in _INTERESTS),
    ),
    claims=(
        Claim(
            "AutoInt is better than logistic regression, the factorisation machine, the cross network and the compressed "
            "interaction network.",
            "Song et al. 2019, arXiv 1810.11921",
            tuple(
                above(named(CENSUS, AUTOINT), named(CENSUS, label))
                for label in (
                    "logistic regression",
                    "factorisation machine",
                    "cross network",
                    "compressed interaction",
                )
            ),
        ),
        Claim(
            "With a network beside it AutoInt is better than DCN and xDeepFM.",
            "Song et al. 2019, arXiv 1810.11921",
            (
                above(named(CENSUS, "AutoInt+"), named(CENSUS, "DCN")),
                above(named(CENSUS, "AutoInt+"), named(CENSUS, "xDeepFM")),
            ),
        ),
        Claim(
            "Attention to the history is better than its mean, where the history decides.",
            "Zhou et al. 2018, arXiv 1706.06978",
            (above(named(PLANTED, DIN), named(PLANTED, MEAN), by=0.05),),
        ),
        Claim(
            "Attention to the history is better than its mean on MovieLens.",
            "Zhou et al. 2018, arXiv 1706.06978: AUC 0.7337 and 0.7300",
            (above(named(FILMS, DIN), named(FILMS, MEAN)),),
        ),
        Claim(
            "The outer product before the weights is what finds the interest.",
            "Zhou et al. 2018, arXiv 1706.06978, and a survey article",
            (
                above(named(PLANTED, DIN), named(PLANTED, PLAIN), by=0.02),
                above(named(FILMS, DIN), named(FILMS, PLAIN)),
            ),
        ),
        Claim(
            "Dice is better than PReLU.",
            "Zhou et al. 2018, arXiv 1706.06978: AUC 0.7348 and 0.7337",
            (
                above(named(PLANTED, DIN), named(PLANTED, PRELU)),
                above(named(FILMS, DIN), named(FILMS, PRELU)),
            ),
        ),
        Claim(
            "Mini-batch-aware L2 helps where items are many.",
            "Zhou et al. 2018, arXiv 1706.06978",
            (above(named(FILMS, L2), named(FILMS, DIN)),),
        ),
        Claim(
            "All models of the census are within 0.01 of AUC.",
            "ours, of adult_mmoe and its baselines",
            tuple(
                near(named(CENSUS, AUTOINT), named(CENSUS, label), within=0.01)
                for label in _RIVALS
                if label != AUTOINT
            ),
        ),
        Claim(
            "Planted histories need attention: it reaches 0.85.",
            "ours, of planted_histories_din",
            (reaches(named(PLANTED, DIN), 0.85),),
        ),
    ),
    seeds=tuple(range(6)),
    rates=(3e-3, 1e-2, 2e-2),
    method=(
        "Mean AUC of two census questions (22,000 rows train); AUC of one question on planted histories of 8 items; AUC of a user's "
        "next film beside one that is as popular. Embeddings of width 8 everywhere. Each model has the best of three learning rates "
        "on validation, searched from the first seed."
    ),
    limits=(
        f"{STEPS:,} steps, and three learning rates to choose from.",
        "The papers' data are of millions of rows and fields with millions of ids; here there are thousands.",
    ),
)
