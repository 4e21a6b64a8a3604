"""The runs on Adult: `regard train adult_mmoe`, and the same rows by other models of tables."""

from regard.lab.recipes.run import Run
from regard.lab.tasks import Adult
from regard.lab.train import TrainConfig
from regard.models import (
    AutoIntConfig,
    FactorizationMachineConfig,
    LogisticRegressionConfig,
    MMoEConfig,
    ModelConfig,
)


def adult_mmoe() -> Run:
    """MMoE on two tasks of a census: income above 50,000 dollars, and never married.

    Mean AUC on 4,881 test rows: 0.9313, and 0.9250 for scikit-learn's logistic regression, a margin of 0.0063; gradient-boosted
    trees have 0.9387.
    """
    return _run(MMoEConfig(num_tasks=2, dim=16), steps=1500, lr=5e-3)


def adult_autoint() -> Run:
    """AutoInt on the two tasks of the census.

    Mean AUC on 4,881 test rows: 0.9299, and 0.9250 for scikit-learn's logistic regression, a margin of 0.0049.
    """
    model = AutoIntConfig(num_tasks=2, dim=8, head_dim=8, num_layers=2, dropout=0.1)
    return _run(model, steps=1500)


def adult_factorization_machine() -> Run:
    """A factorisation machine on the two tasks of the census.

    Mean AUC on 4,881 test rows: 0.9251; scikit-learn's logistic regression has 0.9250, so there is no margin worth the name,
    and none after 1,500 steps at a rate of 0.01 (0.9292 in validation, as logistic regression has).
    """
    return _run(FactorizationMachineConfig(num_tasks=2))


def adult_logistic_regression() -> Run:
    """Logistic regression, trained as the other models are, on the two tasks of the census.

    Mean AUC on 4,881 test rows: 0.9248, and 0.5 for the majority. The task's baseline is the same model at its optimum,
    0.9250: there is nothing to gain over it, and this run shows that training reaches it.
    """
    return _run(LogisticRegressionConfig(num_tasks=2), lr=3e-2)


def _run(model: ModelConfig, *, steps: int = 600, lr: float = 3e-3) -> Run:
    train = TrainConfig(steps=steps, batch_size=256, lr=lr, eval_every=100)
    return Run(task=Adult(), model=model, train=train)
