"""Baselines for models of fields: logistic regression, and the factorisation machine (Rendle 2010, ICDM).

    LR:  y = b + sum_m w_m           FM:  y = LR + sum_{m < k} <e_m, e_k> = LR + (|sum_m e_m|^2 - sum_m |e_m|^2) / 2

w_m is the weight of a field: of its id, the mean over the ids of a sequence, v_m x_m for a number. Cost: M, and M D for FM.
"""

from einops import rearrange
from torch import nn

from regard.models.config import FieldsConfig, FieldsModel, Logits
from regard.nn.fields import FieldBatch, FieldEmbedding
from regard.nn.starts import unset


class LogisticRegressionConfig(FieldsConfig):
    """A model with one weight for each value of each field; fields as in FieldsConfig."""

    name = "logistic_regression"


class LogisticRegression(FieldsModel):
    """model(batch) -> logits [B num_tasks]"""

    name = "logistic_regression"

    def __init__(self, config: LogisticRegressionConfig):
        super().__init__(config)
        self.linear = FieldEmbedding(config.fields, config.num_tasks)
        self.bias = unset(config.num_tasks)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.bias)

    def forward(self, batch: FieldBatch) -> Logits:
        self.check(batch)
        return self.linear(batch)[0].sum(1) + self.bias


class FactorizationMachineConfig(LogisticRegressionConfig):
    """A configuration with dim, the width of the embeddings of each task."""

    name = "factorization_machine"
    dim: int = 16


class FactorizationMachine(LogisticRegression):
    """model(batch) -> logits [B num_tasks]"""

    name = "factorization_machine"

    def __init__(self, config: FactorizationMachineConfig):
        super().__init__(config)
        self.embedding = FieldEmbedding(config.fields, config.num_tasks * config.dim)

    def forward(self, batch: FieldBatch) -> Logits:
        linear = super().forward(batch)
        e = rearrange(self.embedding(batch)[0], "b m (k d) -> b m k d", d=self.config.dim)
        return linear + (e.sum(1).square() - e.square().sum(1)).sum(-1) / 2
