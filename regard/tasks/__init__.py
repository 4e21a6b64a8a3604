"""A task = data + loss + metric. `TASKS` lists them; each is a frozen dataclass whose fields are its options."""

from regard.core import Catalog
from regard.data import Data
from regard.tasks.copy_across import CopyAcross
from regard.tasks.correlated_tasks import CorrelatedTasks
from regard.tasks.debian_summary import DebianSummary
from regard.tasks.dialogue import Dialogue
from regard.tasks.digits import Digits
from regard.tasks.docstrings import Docstrings
from regard.tasks.duplication import Duplication
from regard.tasks.greek_english import GreekEnglish
from regard.tasks.listops import ListOps
from regard.tasks.pathfinder import Pathfinder
from regard.tasks.recall import Recall
from regard.tasks.shakespeare_permuted import ShakespearePermuted
from regard.tasks.stdlib_bytes import StdlibBytes
from regard.tasks.stdlib_permuted import StdlibPermuted
from regard.tasks.task import IGNORED, KINDS, Batch, Splits, Task
from regard.tasks.text_pairs import TextPairs
from regard.tasks.translation import BibleEs, TextFiles, TranslateDe, TranslateFr, TranslateIt

TASKS: Catalog[type[Task]] = Catalog(
    "task",
    (
        ListOps,
        Digits,
        StdlibBytes,
        StdlibPermuted,
        ShakespearePermuted,
        Recall,
        CopyAcross,
        Duplication,
        CorrelatedTasks,
        Pathfinder,
        Docstrings,
        TranslateDe,
        TranslateFr,
        TranslateIt,
        BibleEs,
        TextFiles,
        GreekEnglish,
        DebianSummary,
        Dialogue,
    ),
)

__all__ = [
    "IGNORED",
    "KINDS",
    "TASKS",
    "Batch",
    "BibleEs",
    "CopyAcross",
    "CorrelatedTasks",
    "Data",
    "DebianSummary",
    "Dialogue",
    "Digits",
    "Docstrings",
    "Duplication",
    "GreekEnglish",
    "ListOps",
    "Pathfinder",
    "Recall",
    "ShakespearePermuted",
    "Splits",
    "StdlibBytes",
    "StdlibPermuted",
    "Task",
    "TextFiles",
    "TextPairs",
    "TranslateDe",
    "TranslateFr",
    "TranslateIt",
]
