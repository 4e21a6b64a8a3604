"""gates: MMoE's gate, the attention-query gate, one gate for all tasks and no gate, over tasks more and less alike."""

from typing import Any

from regard.lab.findings.finding import Claim, Entry, Finding, above, near
from regard.lab.findings.small import brief
from regard.lab.recipes import Run
from regard.lab.tasks import CorrelatedTasks
from regard.models import MMoEConfig

MMOE, QUERY, ONE, SHARED = "MMoE's gates", "attention-query gates", "one gate", "shared bottom"
_MODELS: dict[str, dict[str, Any]] = {
    MMOE: {},
    QUERY: {"gate": "attention_query"},
    ONE: {"gate": "one"},
    SHARED: {"gate": "none", "num_experts": 1, "expert_dims": (128,)},
}
RHOS = (0.0, 0.5, 1.0)
STEPS = 2000


def _part(rho: float) -> str:
    return f"cosine {rho:g} of the tasks"


def _on(rho: float, label: str) -> str:
    return f"{_part(rho)}: {label}"


def _entry(rho: float, label: str) -> Entry:
    def run() -> Run:
        task = CorrelatedTasks(rho=rho)
        model = MMoEConfig(input_dim=task.dim, num_tasks=2, **_MODELS[label])
        return Run(
            task=task,
            model=model,
            train=brief(steps=STEPS, batch_size=128, lr=5e-3, weight_decay=0.0),
        )

    return Entry(label, run, part=_part(rho))


GATES = Finding(
    name="gates",
    about="Does a gate for each task help, and does a learned query make a better one, as tasks grow unlike?",
    entries=tuple(_entry(rho, label) for rho in RHOS for label in _MODELS),
    claims=(
        Claim(
            "Gates for each task are better than a shared bottom where tasks differ.",
            "Ma et al. 2018, KDD",
            (above(_on(0.0, MMOE), _on(0.0, SHARED)), above(_on(0.5, MMOE), _on(0.5, SHARED))),
        ),
        Claim(
            "Gates for each task are better than one gate where tasks differ.",
            "Ma et al. 2018, KDD",
            (above(_on(0.0, MMOE), _on(0.0, ONE)), above(_on(0.5, MMOE), _on(0.5, ONE))),
        ),
        Claim(
            "Where tasks are the same, one gate is as good as several, within 0.005 of R2.",
            "Ma et al. 2018, KDD",
            (near(_on(1.0, MMOE), _on(1.0, ONE), within=0.005),),
        ),
        *(
            Claim(
                f"A learned query that attends to the experts is better than MMoE's gate: cosine {rho:g}.",
                "a survey article, of several production tasks and without numbers",
                (above(_on(rho, QUERY), _on(rho, MMOE)),),
            )
            for rho in RHOS
        ),
    ),
    seeds=tuple(range(10)),
    rates=(2e-3, 5e-3, 1e-2),
    method=(
        "The synthetic regression of MMoE's paper, two tasks over 100 numbers: 20,000 rows train, R2 is the mean of the tasks. "
        "Eight experts of 16 units; the shared bottom has 128 units, which is as many weights. Each model has "
        "the best of three learning rates on validation, searched from the first seed."
    ),
    limits=(
        f"{STEPS:,} steps of 128 rows.",
        "Synthetic tasks: a production system has many tasks, of unlike sizes and speeds.",
    ),
)
