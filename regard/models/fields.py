"""What models of a table's fields are configured by, and the check of their batches."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import nn

from regard.core.fields import Field, check_fields
from regard.core.shapes import check_positive


@dataclass(frozen=True, kw_only=True)
class FieldsConfig(ABC):
    """fields: of a `regard.data.Schema`, or written by hand. num_tasks: logits of each row."""

    fields: tuple[Field, ...]
    num_tasks: int = 1

    def __post_init__(self):
        check_fields(self.fields)
        check_positive(num_tasks=self.num_tasks)

    @abstractmethod
    def build(self) -> nn.Module:
        """The model of this configuration, newly initialised."""
