"""A task = data + loss + metric. `TASKS` lists them; each is a frozen dataclass whose fields are its options."""

from regard.core import Catalog
from regard.tasks.digits import Digits
from regard.tasks.listops import ListOps
from regard.tasks.stdlib_bytes import StdlibBytes
from regard.tasks.task import IGNORED, Batch, Splits, Task

TASKS: Catalog[type[Task]] = Catalog("task", (ListOps, Digits, StdlibBytes))

__all__ = ["IGNORED", "TASKS", "Batch", "Digits", "ListOps", "Splits", "StdlibBytes", "Task"]
