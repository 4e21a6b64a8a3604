"""A task = data + loss + metric. `TASKS` lists them; each is a frozen dataclass whose fields are its options."""

from regard.core import Catalog
from regard.lab import require_packages
from regard.lab.tasks.greek_english import GreekEnglish
from regard.lab.tasks.images import Digits, FashionMNIST, Pathfinder
from regard.lab.tasks.language_models import OwnText, StdlibBytes
from regard.lab.tasks.listops import ListOps
from regard.lab.tasks.masked import SpamMasked, StdlibMasked
from regard.lab.tasks.pairs import DebianSummary, Dialogue, TextFiles, TranslateDe
from regard.lab.tasks.permuted import StdlibPermuted
from regard.lab.tasks.recall import Recall
from regard.lab.tasks.tables import Adult, MovieLens, OwnTable, PlantedHistories
from regard.lab.tasks.task import IGNORED, KINDS, Batch, Splits, Task
from regard.lab.tasks.text_pairs import TextPairs
from regard.lab.tasks.texts import BibleChapters, DebianSections, LabelledTexts, Spam
from regard.lab.tasks.vectors import CorrelatedTasks, PlaceReaderConfig, WhitePixel

require_packages()

TASKS: Catalog[type[Task]] = Catalog(
    "task",
    (
        ListOps, Recall, Digits, FashionMNIST, Pathfinder, WhitePixel, StdlibBytes, StdlibMasked,
        StdlibPermuted, SpamMasked, Spam, DebianSections, BibleChapters, TranslateDe, GreekEnglish,
        DebianSummary, Dialogue, Adult, MovieLens, PlantedHistories, CorrelatedTasks, OwnText, LabelledTexts,
        TextFiles, OwnTable,
    ),
)  # fmt: skip

__all__ = [
    "IGNORED", "KINDS", "TASKS", "Adult", "Batch", "BibleChapters", "CorrelatedTasks", "DebianSections",
    "DebianSummary", "Dialogue", "Digits", "FashionMNIST", "GreekEnglish", "LabelledTexts", "ListOps",
    "MovieLens", "OwnTable", "OwnText", "Pathfinder", "PlaceReaderConfig", "PlantedHistories", "Recall",
    "Spam", "SpamMasked", "Splits", "StdlibBytes", "StdlibMasked", "StdlibPermuted", "Task", "TextFiles",
    "TextPairs", "TranslateDe", "WhitePixel",
]  # fmt: skip
