"""What models of a table's fields are configured by, and the check of their batches."""

from dataclasses import dataclass

from regard.core.fields import Field, check_fields
from regard.core.shapes import check_positive
from regard.models.config import ModelConfig


@dataclass(frozen=True, kw_only=True)
class FieldsConfig(ModelConfig):
    """fields: of a `regard.data.Schema`, or written by hand. num_tasks: logits of each row."""

    kinds = ("table",)

    fields: tuple[Field, ...]
    num_tasks: int = 1

    def __post_init__(self):
        check_fields(self.fields)
        check_positive(num_tasks=self.num_tasks)
