"""Fields of a table, as models see them, and the ids that mark missing values.

A batch is a dict from a field's name to a tensor: ids [B] for a Categorical, numbers [B] for a Numeric, ids [B T] for a
Sequence. Id 0 is missing (in a sequence: padding), 1 is a value that was not known when the schema was made, and known
values follow. A number that is missing is NaN.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core import (
    CheckedOptions,
    OptionError,
    Scalar,
    ShapeError,
    Vectors,
    clear,
    first_parameter,
    is_dense,
    is_whole,
    shown,
)
from regard.functional.cache import readable
from regard.nn.starts import NormalRows, normal_rows

MISSING = 0
UNKNOWN = 1
FIRST_KNOWN = 2

FieldBatch = Mapping[str, Tensor]
Occurrences = Mapping[str, Int[Tensor, "V"]]
"""How often each id of a vocabulary occurs, by the vocabulary's name."""
Embedded = Float[Tensor, "B M D"]
Present = Bool[Tensor, "B M"]
"""True where a field is not missing."""


@dataclass(frozen=True)
class Named(metaclass=CheckedOptions):
    """Base of the kinds of fields."""

    name: str

    def __post_init__(self):
        if not self.name or "." in self.name or not is_whole(self.name):
            raise OptionError(
                f"a field's name must be a string of whole characters without dots, got {self.name!r}"
            )


@dataclass(frozen=True)
class Categorical(Named):
    """One of `size` ids, missing and unknown included."""

    size: int

    @property
    def of(self) -> "Categorical":
        """The vocabulary: its own."""
        return self


@dataclass(frozen=True)
class Numeric(Named):
    """A number."""


@dataclass(frozen=True)
class Sequence(Named):
    """Any number of values `of` a Categorical, with which it shares its embeddings: a history of items, some genres."""

    of: Categorical


Field = Categorical | Numeric | Sequence
Fields = tuple[Field, ...]


def vocabularies(fields: Fields) -> dict[str, int]:
    """Name -> size of every vocabulary of the fields, each once."""
    sizes: dict[str, int] = {}
    for field in fields:
        if not isinstance(field, Numeric):
            kind = field.of
            if sizes.setdefault(kind.name, kind.size) != kind.size:
                raise OptionError(
                    f"fields of {kind.name!r} have {sizes[kind.name]} and {kind.size} values: they share one vocabulary"
                )
    return sizes


def check_fields(fields: Fields) -> None:
    """Each has a name of its own."""
    names = [field.name for field in fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise OptionError(f"two fields are called {twice[0]!r}")
    vocabularies(fields)


def check_batch(model: Any, batch: object) -> None:
    """Every field of the model is there, with one batch size; values are read where that costs no synchronisation."""
    who, weight = model.config.name, first_parameter(model)
    if not isinstance(batch, Mapping):
        raise ShapeError(
            f"{who}: batch must be a dict of tensors by field name, got {shown(batch)}"
        )
    size = None
    for field in model.config.fields:
        x = batch.get(field.name)
        several = isinstance(field, Sequence)
        number = isinstance(field, Numeric)
        if (
            not is_dense(x)
            or x.ndim != 1 + several
            or not (x.is_floating_point() if number else x.dtype in (torch.int64, torch.int32))
        ):
            kind = "floating point numbers" if number else "int64 or int32 ids"
            raise ShapeError(
                f"{who}: {field.name} must be {kind} {'[B, T]' if several else '[B]'}, got {shown(x)}"
            )
        if weight is not None and x.device != weight.device:
            raise ShapeError(
                f"{who}: {field.name} is on {x.device}, the model on {weight.device}. Move one of them."
            )
        size = x.shape[0] if size is None else size
        if x.shape[0] != size:
            raise ShapeError(f"{who}: {field.name} has batch {len(x)}, others have {size}")
        if not isinstance(field, Numeric) and (wrong := outside(x, field.of.size)) is not None:
            raise ShapeError(
                f"{who}: {field.name} holds id {wrong}, outside its {field.of.size} values"
            )


def outside(ids: Int[Tensor, "*b"], size: int) -> int | None:
    """An id below 0, or not below `size`; None where there is none, or reading them would sync."""
    if not readable(ids) or not ids.numel():
        return None
    low, high = int(ids.min()), int(ids.max())
    return low if low < 0 else high if high >= size else None


class FieldEmbedding(nn.Module):
    """batch -> e [B M D], one row for each field, and present [B M] (AutoInt, Song et al. 2019, arXiv 1810.11921, section 4.3).

        categorical: E[id]      sequence: mean of its E[id]      numeric: x v

    Fields of one vocabulary share E, whose rows start from N(0, std^2). What is missing is zero, and not `present`.
    """

    def __init__(self, fields: Fields, dim: int, *, std: float = 0.01):
        super().__init__()
        self.fields = fields
        self.dim = dim
        sizes = vocabularies(fields)
        self.tables = nn.ModuleDict({f"of_{name}": NormalRows(sizes[name], dim) for name in sizes})
        self.vectors = nn.ParameterDict(
            {f"of_{field.name}": torch.empty(dim) for field in fields if isinstance(field, Numeric)}
        )
        self.std = std
        normal_rows(*self.tables.values(), std=std)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for vector in self.vectors.values():
            nn.init.normal_(vector, std=self.std)

    def forward(self, batch: FieldBatch) -> tuple[Embedded, Present]:
        rows, present = zip(
            *(self._row(field, batch[field.name]) for field in self.fields), strict=True
        )
        return torch.stack(rows, 1), torch.stack(present, 1)

    def table(self, name: str) -> nn.Embedding:
        return cast(nn.Embedding, self.tables[f"of_{name}"])

    def look_up(self, name: str, ids: Int[Tensor, "*b"]) -> Vectors:
        """Rows of a vocabulary's table; zero where the id is that of a missing value."""
        return clear(self.table(name)(ids), ids != MISSING)

    def batch_l2(self, batch: FieldBatch, counts: Occurrences) -> Scalar:
        """Mini-batch-aware L2 (Zhou et al. 2018, arXiv 1706.06978): sum of |E[j]|^2 / (2 n_j) over the ids j in the batch.

        `counts` holds n_j, how often id j occurs in the training data, for each vocabulary. Times lambda, the term's
        gradient is lambda E[j] / n_j for each id that occurs, however often, and zero for the others.
        """
        total = next(self.parameters()).new_zeros(())
        for name in vocabularies(self.fields):
            weight = self.table(name).weight
            here = [
                batch[field.name].flatten()
                for field in self.fields
                if not isinstance(field, Numeric) and field.of.name == name
            ]
            ids = torch.cat(here).unique()
            ids = ids[ids != MISSING]
            n = counts[name].to(weight)[ids].clamp_min(1)
            total = total + (weight[ids].square().sum(1) / n).sum() / 2
        return total

    def _row(self, field: Field, x: Tensor) -> tuple[Tensor, Tensor]:
        if isinstance(field, Numeric):
            vector = self.vectors[f"of_{field.name}"]
            present = ~x.isnan()
            x = torch.where(present, x, 0.0).to(vector.dtype)
            return x[:, None] * vector, present
        rows = self.look_up(field.of.name, x)
        exists = x != MISSING
        if not isinstance(field, Sequence):
            return rows, exists
        return rows.sum(1) / exists.sum(1, keepdim=True).clamp_min(1), exists.any(1)
