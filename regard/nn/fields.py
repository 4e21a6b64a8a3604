"""Fields of a table, as models see them, and the ids that mark missing values.

A batch is a dict from a field's name to a tensor: ids [B] for a Categorical, numbers [B] for a Numeric, ids [B T] for a
Sequence. Id 0 is missing (in a sequence: padding), 1 is a value that was not known when the schema was made, and known
values follow. A number that is missing is NaN.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core.errors import OptionError, ShapeError
from regard.core.shapes import check_positive, is_dense
from regard.nn.starts import NormalRows, normal_rows

MISSING, UNKNOWN, FIRST_KNOWN = 0, 1, 2

FieldBatch = Mapping[str, Tensor]


@dataclass(frozen=True)
class Categorical:
    """One of `size` ids, missing and unknown included."""

    name: str
    size: int

    def __post_init__(self):
        _check_name(self.name)
        check_positive(size=self.size)


@dataclass(frozen=True)
class Numeric:
    name: str

    def __post_init__(self):
        _check_name(self.name)


@dataclass(frozen=True)
class Sequence:
    """Any number of values `of` a Categorical, with which it shares its embeddings: a history of items, some genres."""

    name: str
    of: Categorical

    def __post_init__(self):
        _check_name(self.name)
        if not isinstance(self.of, Categorical):
            raise OptionError(f"field {self.name!r}: of must be a Categorical, got {self.of!r}")


Field = Categorical | Numeric | Sequence


def vocabularies(fields: tuple[Field, ...]) -> dict[str, int]:
    """Name -> size of every vocabulary of the fields, each once."""
    sizes: dict[str, int] = {}
    for field in fields:
        kind = field.of if isinstance(field, Sequence) else field
        if isinstance(kind, Categorical):
            if sizes.setdefault(kind.name, kind.size) != kind.size:
                raise OptionError(
                    f"fields of {kind.name!r} have {sizes[kind.name]} and {kind.size} values: they share one vocabulary"
                )
    return sizes


def check_fields(fields: object) -> None:
    """At least one field, each with a name of its own."""
    if not isinstance(fields, tuple) or not fields:
        raise OptionError(f"fields must be a tuple of at least one field, got {fields!r}")
    for field in fields:
        if not isinstance(field, Field):
            raise OptionError(
                f"fields must be Categorical, Numeric or Sequence, got {type(field).__name__}"
            )
    names = [field.name for field in fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise OptionError(f"two fields are called {twice[0]!r}")
    vocabularies(fields)


def check_batch(
    who: str, fields: tuple[Field, ...], batch: object, weight: Tensor | None = None
) -> None:
    """Every field is there, with one batch size; values are read where that costs no synchronisation."""
    if not isinstance(batch, Mapping):
        raise ShapeError(
            f"{who}: batch must be a dict of tensors by field name, got {type(batch).__name__}"
        )
    size = None
    for field in fields:
        x = batch.get(field.name)
        if not isinstance(x, Tensor) or not is_dense(x):
            raise ShapeError(f"{who}: the batch has no dense tensor for field {field.name!r}")
        if weight is not None and x.device != weight.device:
            raise ShapeError(
                f"{who}: {field.name} is on {x.device}, the model on {weight.device}. Move one of them."
            )
        shape = "[B, T]" if isinstance(field, Sequence) else "[B]"
        if x.dim() != (2 if isinstance(field, Sequence) else 1):
            raise ShapeError(f"{who}: {field.name} must have shape {shape}, got {list(x.shape)}")
        size = len(x) if size is None else size
        if len(x) != size:
            raise ShapeError(f"{who}: {field.name} has batch {len(x)}, others have {size}")
        if isinstance(field, Numeric):
            if not x.is_floating_point():
                raise ShapeError(f"{who}: {field.name} must be floating point, got {x.dtype}")
        elif x.dtype not in (torch.int64, torch.int32):
            raise ShapeError(f"{who}: {field.name} must be int64 or int32 ids, got {x.dtype}")
        else:
            _check_ids(who, field, x)


def _check_ids(who: str, field: Categorical | Sequence, ids: Tensor) -> None:
    if torch.compiler.is_compiling() or ids.device.type != "cpu" or not ids.numel():
        return
    size = field.of.size if isinstance(field, Sequence) else field.size
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= size:
        raise ShapeError(
            f"{who}: {field.name} holds id {low if low < 0 else high}, outside its {size} values"
        )


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name or "." in name:
        raise OptionError(f"a field's name must be a string without dots, got {name!r}")


class FieldEmbedding(nn.Module):
    """batch -> e [B M D], one row for each field, and present [B M] (AutoInt, Song et al. 2019, arXiv 1810.11921, section 4.3).

        categorical: E[id]      sequence: mean of its E[id]      numeric: x v

    Fields of one vocabulary share E, whose rows start from N(0, std^2). What is missing is zero, and not `present`.
    """

    def __init__(self, fields: tuple[Field, ...], dim: int, *, std: float = 0.01):
        check_positive(dim=dim)
        super().__init__()
        self.fields, self.dim = fields, dim
        self.tables = nn.ModuleDict(
            {f"of_{name}": NormalRows(size, dim) for name, size in vocabularies(fields).items()}
        )
        numeric = [field.name for field in fields if isinstance(field, Numeric)]
        self.vectors = nn.ParameterDict({f"of_{name}": torch.empty(dim) for name in numeric})
        self.std = std
        normal_rows(*(self.table(name) for name in vocabularies(fields)), std=std)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for vector in self.vectors.values():
            nn.init.normal_(vector, std=self.std)

    def forward(self, batch: FieldBatch) -> tuple[Float[Tensor, "B M D"], Bool[Tensor, "B M"]]:
        rows, present = zip(
            *(self._row(field, batch[field.name]) for field in self.fields), strict=True
        )
        return torch.stack(rows, 1), torch.stack(present, 1)

    def table(self, vocabulary: str) -> nn.Embedding:
        return cast(nn.Embedding, self.tables[f"of_{vocabulary}"])

    def look_up(self, vocabulary: str, ids: Int[Tensor, "*b"]) -> Float[Tensor, "*b D"]:
        """Rows of a vocabulary's table; zero where the id is that of a missing value."""
        rows = self.table(vocabulary)(ids)
        return torch.where((ids != MISSING)[..., None], rows, rows.new_zeros(()))

    def batch_l2(
        self, batch: FieldBatch, counts: Mapping[str, Int[Tensor, "V"]]
    ) -> Float[Tensor, ""]:
        """Mini-batch-aware L2 (Zhou et al. 2018, arXiv 1706.06978): sum of |E[j]|^2 / (2 n_j) over the ids j in the batch.

        `counts` holds n_j, how often id j occurs in the training data, for each vocabulary. Times lambda, the term's
        gradient is lambda E[j] / n_j for each id that occurs, however often, and zero for the others.
        """
        total = next(self.parameters()).new_zeros(())
        for vocabulary in vocabularies(self.fields):
            weight = self.table(vocabulary).weight
            occurs = torch.zeros(len(weight), dtype=torch.bool, device=weight.device)
            for field in self.fields:
                if not isinstance(field, Numeric) and _vocabulary(field) == vocabulary:
                    occurs = occurs.index_fill(0, batch[field.name].flatten(), True)
            occurs[MISSING] = False
            ids = occurs.nonzero()[:, 0]
            n = counts[vocabulary].to(weight.device)[ids].clamp(min=1)
            total = total + (weight[ids].square().sum(1) / n).sum() / 2
        return total

    def _row(self, field: Field, x: Tensor) -> tuple[Tensor, Tensor]:
        if isinstance(field, Numeric):
            vector = self.vectors[f"of_{field.name}"]
            present = ~x.isnan()
            x = torch.where(present, x, x.new_zeros(())).to(vector.dtype)
            return x[:, None] * vector, present
        rows, exists = self.look_up(_vocabulary(field), x), x != MISSING
        if not isinstance(field, Sequence):
            return rows, exists
        return rows.sum(1) / exists.sum(1, keepdim=True).clamp(min=1), exists.any(1)


def _vocabulary(field: Field) -> str:
    return field.of.name if isinstance(field, Sequence) else field.name
