"""A task = data + loss + metric. `TASKS` lists them; each is a frozen dataclass whose fields are its options."""

from regard.core import Catalog
from regard.data import Data
from regard.tasks.adult import Adult
from regard.tasks.bible_chapters import BibleChapters
from regard.tasks.copy_across import CopyAcross
from regard.tasks.correlated_tasks import CorrelatedTasks
from regard.tasks.criteo import Criteo
from regard.tasks.debian_sections import DebianSections
from regard.tasks.debian_summary import DebianSummary
from regard.tasks.dialogue import Dialogue
from regard.tasks.digits import Digits
from regard.tasks.docstrings import Docstrings
from regard.tasks.duplication import Duplication
from regard.tasks.fashion_mnist import FashionMNIST
from regard.tasks.flights import Flights
from regard.tasks.greek_english import GreekEnglish
from regard.tasks.listops import ListOps
from regard.tasks.manual_pages import ManualPages
from regard.tasks.newsgroups import Newsgroups
from regard.tasks.newsgroups_masked import NewsgroupsMasked
from regard.tasks.next_item import AmazonReviews, MovieLens, Taobao
from regard.tasks.own_copies import (
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
from regard.tasks.pathfinder import Pathfinder
from regard.tasks.planted_histories import PlantedHistories
from regard.tasks.recall import Recall
from regard.tasks.shakespeare_bytes import ShakespeareBytes
from regard.tasks.shakespeare_masked import ShakespeareMasked
from regard.tasks.shakespeare_permuted import ShakespearePermuted
from regard.tasks.spam import Spam
from regard.tasks.spam_masked import SpamMasked
from regard.tasks.stdlib_bytes import StdlibBytes
from regard.tasks.stdlib_masked import StdlibMasked
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
        PlantedHistories,
        Flights,
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
        ManualPages,
        FashionMNIST,
        ShakespeareBytes,
        ShakespeareMasked,
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
    "Flights",
    "GreekEnglish",
    "IMDb",
    "LRAListOps",
    "LRAPathfinder",
    "LRARetrieval",
    "LabelledTexts",
    "ListOps",
    "ManualPages",
    "MovieLens",
    "Newsgroups",
    "NewsgroupsMasked",
    "Pathfinder",
    "PlantedHistories",
    "Recall",
    "ShakespeareBytes",
    "ShakespeareMasked",
    "ShakespearePermuted",
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
