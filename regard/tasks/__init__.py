"""A task = data + loss + metric. `TASKS` lists them; each is a frozen dataclass whose fields are its options."""

from regard.core import Catalog
from regard.tasks.listops import ListOps
from regard.tasks.task import IGNORED, Batch, Splits, Task

TASKS: Catalog[type[Task]] = Catalog("task", (ListOps,))

__all__ = ["IGNORED", "TASKS", "Batch", "ListOps", "Splits", "Task"]
