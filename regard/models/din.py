"""DIN: Deep Interest Network (Zhou et al. 2018, KDD, arXiv 1706.06978).

    v_U(A) = sum_j a(e_j, v_A) e_j for each history,   y = MLP([v_U ; v_A ; other fields])

A candidate item attends to the user's history. Histories are Sequence fields; the candidate is the
field of the same vocabulary, `Sequence("history", of=item)` and `item`. Several histories, of items and of their
shops say, are one list of pairs: they must be aligned, and their embeddings are joined. `pool` is any of POOLS that takes
a query: target_query is the paper's, whose options are `pool_options`; mean the base model; cross any mixer
that takes a context, for long histories: pool="cross", pool_options={"mixer": "linear", "num_heads": 2}.

Deviation: hidden units of the last network are Dice or PReLU here, without batch normalisation before them. The
mini-batch-aware L2 is a term of the loss: loss + lambda * model.batch_l2(batch, schema.counts). Cost: S D F.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import Marks, OptionError, OtherTokens, Scalar, ShapeError, is_dense, shown
from regard.mixers import build
from regard.models.config import FieldsConfig, FieldsModel, Logits, Options
from regard.nn.dice import Dice
from regard.nn.dnn import DNN, Widths
from regard.nn.fields import (
    MISSING,
    Categorical,
    Field,
    FieldBatch,
    FieldEmbedding,
    Occurrences,
    Sequence,
    vocabularies,
)
from regard.pools import Pool, build_pool, resolve_pool

ACTIVATIONS = {"dice": Dice, "prelu": nn.PReLU}


class DINConfig(FieldsConfig):
    """The configuration of DIN: hidden_dims and activation are those of the network after the pool.

    Args:
        history: names of the sequence fields that are attended to
        activation: activation of the network's hidden layers
    """

    name = "din"
    history: tuple[str, ...]
    dim: int = 16
    pool: str | type[Pool] = "target_query"
    pool_options: Options = field(default_factory=dict)
    hidden_dims: Widths = (200, 80)
    activation: Literal["dice", "prelu"] = "dice"

    def __post_init__(self):
        super().__post_init__()
        resolve_pool(self.pool)
        if not self.history:
            raise OptionError(f"history must be a tuple of field names, got {self.history!r}")
        known = self._known
        for name in self.history if known else ():
            sequence = known.get(name)
            if not isinstance(sequence, Sequence):
                raise OptionError(f"history: {name!r} is not a Sequence among the fields")
            if not isinstance(known.get(sequence.of.name), Categorical):
                raise OptionError(
                    f"history: {name!r} holds {sequence.of.name!r}, and no Categorical field of that name is the candidate"
                )

    @property
    def _known(self) -> dict[str, Field]:
        return {field.name: field for field in self.fields}

    @property
    def sequences(self) -> tuple[Sequence, ...]:
        return tuple(self._known[name] for name in self.history)  # type: ignore[misc]


class DIN(FieldsModel):
    """model(batch) -> logits [B num_tasks]"""

    name = "din"

    def __init__(self, config: DINConfig):
        super().__init__(config)
        self.embedding = FieldEmbedding(config.fields, config.dim)
        width = config.dim * len(config.history)
        self.pool = _pool(config, width)
        self.others = [i for i, f in enumerate(config.fields) if f.name not in config.history]
        inputs = width + config.dim * len(self.others)
        self.network = DNN(inputs, config.hidden_dims, activation=ACTIVATIONS[config.activation])
        self.head = nn.Linear(self.network.out_dim, config.num_tasks)

    def forward(self, batch: FieldBatch) -> Logits:
        history, candidate, valid = self._interest(batch)
        interest = self.pool(history, candidate, valid=valid)[:, 0]
        fields = self.embedding(batch)[0][:, self.others].flatten(1)
        return self.head(self.network(torch.cat([interest, fields], 1)))

    def weights(self, batch: FieldBatch) -> Float[Tensor, "B S"]:
        """Tells how much each behaviour counts for the candidate; zero where there is none."""
        history, candidate, valid = self._interest(batch)
        return self.pool.weights(history, candidate, valid=valid)[:, 0]

    def batch_l2(self, batch: FieldBatch, counts: Occurrences) -> Scalar:
        """Mini-batch-aware L2, to be multiplied by lambda: see FieldEmbedding.batch_l2.

        Raises ShapeError where the counts are not those of the schema.
        """
        self.check(batch)
        for name, size in vocabularies(self.config.fields).items():
            found = counts.get(name) if isinstance(counts, Mapping) else None
            if not is_dense(found) or found.is_meta or found.is_complex() or found.shape != (size,):
                raise ShapeError(
                    f"din: counts of {name!r} must be a dense tensor [{size}] of numbers, got {shown(found)}"
                )
        return self.embedding.batch_l2(batch, counts)

    def _interest(self, batch: FieldBatch) -> tuple[OtherTokens, Float[Tensor, "B 1 D"], Marks]:
        self.check(batch)
        sequences = self.config.sequences
        lengths = {s.name: batch[s.name].shape[1] for s in sequences}
        first, *others = lengths.values()
        if any(n != first for n in others):
            raise ShapeError(f"din: histories must be aligned, their lengths are {lengths}")
        look_up = self.embedding.look_up
        history = torch.cat([look_up(s.of.name, batch[s.name]) for s in sequences], -1)
        candidate = torch.cat([look_up(s.of.name, batch[s.of.name]) for s in sequences], -1)
        valid = torch.stack([batch[s.name] != MISSING for s in sequences]).any(0)
        if not valid.shape[1]:  # a pool wants a token, and there may be none with a meaning
            history = F.pad(history, (0, 0, 0, 1))
            valid = F.pad(valid, (0, 1))
        return history, candidate[:, None], valid


def _pool(config: DINConfig, width: int) -> Pool:
    options = dict(config.pool_options)
    if config.pool == "cross" and isinstance(options.get("mixer", "softmax"), str | type):
        mixer = options.pop("mixer", "softmax")
        if "dim" in options:
            raise OptionError(f"pool_options must not hold dim: it is the history's width, {width}")
        options = {"mixer": build(mixer, dim=width, **options)}
    if config.pool == "mean":
        options["query_dim"] = width
    pool = build_pool(config.pool, width, **options)
    if pool.query_dim != width:
        raise OptionError(f"din: pool {pool.name} takes no query of the candidate's width {width}")
    return pool
