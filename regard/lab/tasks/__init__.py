"""A task = data + loss + metric. `TASKS` lists them; each is a frozen dataclass whose fields are its options."""

from regard.core import Catalog
from regard.lab.data import Data
from regard.lab.tasks.adult import Adult
from regard.lab.tasks.bible_chapters import BibleChapters
from regard.lab.tasks.copy_across import CopyAcross
from regard.lab.tasks.correlated_tasks import CorrelatedTasks
from regard.lab.tasks.criteo import Criteo
from regard.lab.tasks.debian_sections import DebianSections
from regard.lab.tasks.debian_summary import DebianSummary
from regard.lab.tasks.dialogue import Dialogue
from regard.lab.tasks.digits import Digits
from regard.lab.tasks.docstrings import Docstrings
from regard.lab.tasks.duplication import Duplication
from regard.lab.tasks.fashion_mnist import FashionMNIST
from regard.lab.tasks.greek_english import GreekEnglish
from regard.lab.tasks.listops import ListOps
from regard.lab.tasks.newsgroups import Newsgroups
from regard.lab.tasks.newsgroups_masked import NewsgroupsMasked
from regard.lab.tasks.next_item import AmazonReviews, MovieLens, Taobao
from regard.lab.tasks.own_copies import (
    MNIST,
    CIFAR10Grey,
    Enwik8,
    IMDb,
    LabelledTexts,
    LRAListOps,
    LRAPathfinder,
    LRARetrieval,
    Text8,
)
from regard.lab.tasks.pathfinder import Pathfinder
from regard.lab.tasks.planted_histories import PlantedHistories
from regard.lab.tasks.recall import Recall
from regard.lab.tasks.shakespeare_bytes import ShakespeareBytes
from regard.lab.tasks.spam import Spam
from regard.lab.tasks.spam_masked import SpamMasked
from regard.lab.tasks.stdlib_bytes import StdlibBytes
from regard.lab.tasks.stdlib_masked import StdlibMasked
from regard.lab.tasks.stdlib_permuted import StdlibPermuted
from regard.lab.tasks.task import IGNORED, KINDS, Batch, Splits, Task
from regard.lab.tasks.text_pairs import TextPairs
from regard.lab.tasks.translation import BibleEs, TextFiles, TranslateDe, TranslateFr, TranslateIt

TASKS: Catalog[type[Task]] = Catalog(
    "task",
    (
        ListOps,
        Digits,
        StdlibBytes,
        StdlibPermuted,
        Recall,
        CopyAcross,
        Duplication,
        CorrelatedTasks,
        PlantedHistories,
        Adult,
        MovieLens,
        AmazonReviews,
        Taobao,
        Criteo,
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
        Spam,
        SpamMasked,
        Newsgroups,
        NewsgroupsMasked,
        DebianSections,
        FashionMNIST,
        ShakespeareBytes,
        StdlibMasked,
        BibleChapters,
        CIFAR10Grey,
        Enwik8,
        Text8,
        MNIST,
        LabelledTexts,
        IMDb,
        LRAListOps,
        LRAPathfinder,
        LRARetrieval,
    ),
)

__all__ = [
    "IGNORED",
    "KINDS",
    "MNIST",
    "TASKS",
    "Adult",
    "AmazonReviews",
    "Batch",
    "BibleChapters",
    "BibleEs",
    "CIFAR10Grey",
    "CopyAcross",
    "CorrelatedTasks",
    "Criteo",
    "Data",
    "DebianSections",
    "DebianSummary",
    "Dialogue",
    "Digits",
    "Docstrings",
    "Duplication",
    "Enwik8",
    "FashionMNIST",
    "GreekEnglish",
    "IMDb",
    "LRAListOps",
    "LRAPathfinder",
    "LRARetrieval",
    "LabelledTexts",
    "ListOps",
    "MovieLens",
    "Newsgroups",
    "NewsgroupsMasked",
    "Pathfinder",
    "PlantedHistories",
    "Recall",
    "ShakespeareBytes",
    "Spam",
    "SpamMasked",
    "Splits",
    "StdlibBytes",
    "StdlibMasked",
    "StdlibPermuted",
    "Taobao",
    "Task",
    "Text8",
    "TextFiles",
    "TextPairs",
    "TranslateDe",
    "TranslateFr",
    "TranslateIt",
]
