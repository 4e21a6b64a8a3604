"""What models of a table's fields are configured by."""

from dataclasses import dataclass

from regard.core import OptionError
from regard.core.fields import Field, check_fields
from regard.core.shapes import check_positive
from regard.models.config import ModelConfig


@dataclass(frozen=True, kw_only=True)
class FieldsConfig(ModelConfig):
    """num_tasks: logits of each row.

    fields: of a `regard.lab.data.Schema`, or written by hand; none where the data that tell them are not read yet.
    """

    kinds = ("table",)

    fields: tuple[Field, ...] = ()
    num_tasks: int = 1

    def __post_init__(self):
        if self.fields != ():
            check_fields(self.fields)
        check_positive(num_tasks=self.num_tasks)


def require_fields(who: str, fields: tuple[Field, ...]) -> None:
    """Before a model is built."""
    if not fields:
        raise OptionError(
            f"{who}: fields are not known. Pass those of a schema, or train it on a table: "
            "its schema tells them."
        )
