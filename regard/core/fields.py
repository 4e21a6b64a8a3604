"""Fields of a table, as models see them, and the ids that mark missing values.

A batch is a dict from a field's name to a tensor: ids [B] for a Categorical, numbers [B] for a Numeric, ids [B T] for a
Sequence. Id 0 is missing (in a sequence: padding), 1 is a value that was not known when the schema was made, and known
values follow. A number that is missing is NaN.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.core.errors import OptionError, ShapeError
from regard.core.shapes import check_positive, is_dense

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
