"""MMoE: multi-gate mixture of experts for several tasks (Ma et al. 2018, KDD), and the models that it is compared with.

    f_i(x) = expert_i(x),   f_k = sum_i g_ki f_i(x),   y_k = tower_k(f_k)

`gate` chooses how the weights are made:
    "linear"            g_k = softmax(W_k x), a gate for each task: MMoE
    "one"               the same for all tasks: OMoE
    "attention_query"   g_k = softmax_i score(c_k, f_i(x)), c_k learned; `gate_options` are that pool's
    "none"              shared-bottom: one expert, and no gates
x is a vector [B input_dim], or the joined embeddings of `fields`. Experts end in a relu, towers are linear, relu, linear. No bias in
gates, and no top-k: all experts are computed. Dropout on the gates' weights (`gate_dropout`, off in the paper) is against gates that
saturate; they are not rescaled to sum to 1. Cost: n experts, K n d for the gates.
"""

from dataclasses import field
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import OptionError, Rate, ShapeError, check_place, is_dense, shown
from regard.models.config import FieldsConfig, Logits, Model, Options
from regard.nn.dnn import Experts, Widths
from regard.nn.fields import FieldBatch, FieldEmbedding, check_batch
from regard.pools import Pool, build_pool

Gating = Literal["linear", "one", "attention_query", "none"]


class MMoEConfig(FieldsConfig):
    """Takes either input_dim (of vectors) or fields (of a table, left out until the data are read); dim is that of embeddings.

    The defaults are those of the paper's synthetic data.

    Args:
        input_dim: channels of an input vector; None: the rows are fields
        num_experts: experts that the gates weigh
        expert_dims: channels of each layer of an expert
        tower_dim: channels of a task tower's hidden layer
        gate: gate of the experts
        gate_options: options of the gate's pool
        gate_dropout: share of the gates' weights that is set to zero in training
    """

    name = "mmoe"
    kinds = ("table", "vectors")
    input_dim: int | None = None
    dim: int = 16
    num_experts: int = 8
    expert_dims: Widths = (16,)
    tower_dim: int = 8
    gate: Gating = "linear"
    gate_options: Options = field(default_factory=dict)
    gate_dropout: Rate = 0.0

    def __post_init__(self):
        if self.input_dim is not None and self.fields:
            raise OptionError(
                "pass input_dim (vectors) or fields (batches of a table), one of them"
            )
        super().__post_init__()
        if not self.expert_dims:
            raise OptionError("expert_dims must hold at least one width")
        if self.gate == "none" and self.num_experts != 1:
            raise OptionError(
                f"gate='none' is shared-bottom, which has one expert: num_experts is {self.num_experts}"
            )
        if self.gate_options and self.gate != "attention_query":
            raise OptionError(f"gate {self.gate!r} has no options")
        if "num_queries" in self.gate_options:
            raise OptionError("gate_options must not hold num_queries: it is num_tasks")


class MMoE(Model):
    """model(x [B input_dim] or batch) -> logits [B num_tasks]"""

    name = "mmoe"

    def __init__(self, config: MMoEConfig):
        super().__init__(config)
        self.embedding = None
        width = config.input_dim
        if config.fields:
            self.embedding = FieldEmbedding(config.fields, config.dim)
            width = config.dim * len(config.fields)
        if width is None:
            raise OptionError("pass input_dim (vectors) or fields (batches of a table)")
        self.width = width
        self.experts = Experts(width, config.num_experts, config.expert_dims)
        self.gate = _gate(config, width, self.experts.out_dim)
        self.dropout = nn.Dropout(config.gate_dropout)
        self.towers = nn.ModuleList(
            nn.Sequential(
                nn.Linear(self.experts.out_dim, config.tower_dim),
                nn.ReLU(),
                nn.Linear(config.tower_dim, 1),
            )
            for _ in range(config.num_tasks)
        )

    def forward(self, x: Float[Tensor, "B d"] | FieldBatch) -> Logits:
        inputs = self._inputs(x)
        outputs = self.experts(inputs)
        fused = self.dropout(self._weights(inputs, outputs)) @ outputs
        return torch.cat([tower(fused[:, k]) for k, tower in enumerate(self.towers)], 1)

    def weights(self, x: Float[Tensor, "B d"] | FieldBatch) -> Float[Tensor, "B K n"]:
        """The weight of each expert for each task; rows sum to 1."""
        inputs = self._inputs(x)
        return self._weights(inputs, self.experts(inputs))

    def _weights(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        K = self.config.num_tasks
        if self.gate is None:
            return outputs.new_ones(len(outputs), K, 1)
        if self.gate.query_dim is None:
            return self.gate.weights(outputs)
        assert self.gate.num_queries is not None
        query = inputs[:, None].expand(-1, self.gate.num_queries, -1)
        return self.gate.weights(outputs, query).expand(-1, K, -1)

    def _inputs(self, x: Tensor | FieldBatch) -> Float[Tensor, "B d"]:
        if self.embedding is None:
            if not is_dense(x) or x.ndim != 2 or x.shape[1] != self.width:
                raise ShapeError(
                    f"mmoe: x must be a dense tensor [B, {self.width}], got {shown(x)}"
                )
            check_place(self.name, "x", x, self.experts.biases[0])
            return x
        check_batch(self, x)
        return self.embedding(x)[0].flatten(1)


def _gate(config: MMoEConfig, width: int, expert_dim: int) -> Pool | None:
    K, n = config.num_tasks, config.num_experts
    if config.gate == "none":
        return None
    if config.gate == "attention_query":
        options = {"max_len": n, **config.gate_options}
        return build_pool("attention_query_gate", expert_dim, num_queries=K, **options)
    gates = K if config.gate == "linear" else 1
    return build_pool("gate", expert_dim, query_dim=width, num_queries=gates, num_experts=n)
