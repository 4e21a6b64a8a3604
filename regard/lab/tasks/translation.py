"""Translation: Debian's descriptions and interface texts, the Bible by verse, and a user's own two files."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from regard.core import OptionError
from regard.lab.data.checks import check_sizes
from regard.lab.data.descriptions import read_descriptions, read_packages, translations
from regard.lab.data.gettext_catalogues import read_catalogues
from regard.lab.data.pairs import Pair, key_of, read_parallel, split_pairs, unique
from regard.lab.data.sources import archive
from regard.lab.data.stdlib import Split
from regard.lab.data.sword import read_verses, verse_pairs
from regard.lab.tasks.text_pairs import TextPairs

INTERFACES = (
    "gettext_libreoffice",
    "gettext_gcc",
    "gettext_krita",
    "gettext_plone",
    "gettext_django",
    "gettext_wagtail",
    "gettext_pretix",
    "gettext_jupyterlab",
)


@dataclass(frozen=True, kw_only=True)
class DescriptionTranslation(TextPairs):
    """English -> another language: short descriptions and paragraphs of Debian packages, then interface texts.

    Split by source package and by catalogue. A paragraph that two packages share counts once, and their differing ones
    may still be alike. Trivial baseline: the source, copied.
    """

    language: ClassVar[str]

    source_len: int = 48
    target_len: int = 64
    catalogues: tuple[str, ...] = ()  # sources of interface texts
    min_words: int = 4  # of the English text

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self.name, min_words=self.min_words)

    def pairs(self) -> list[Pair]:
        english = archive("debian_descriptions")
        other = archive(f"debian_descriptions_{self.language}")
        catalogues = [archive(name) for name in self.catalogues]
        pairs = translations(
            read_packages(english.read("Packages").decode()),
            read_descriptions(english.read("Translation-en").decode(), "en"),
            read_descriptions(other.read(f"Translation-{self.language}").decode(), self.language),
        )
        for catalogue in catalogues:
            pairs += read_catalogues(catalogue, self.language)
        return [pair for pair in pairs if len(pair.source.split()) >= self.min_words]


@dataclass(frozen=True, kw_only=True)
class TranslateDe(DescriptionTranslation):
    """English -> German."""

    name = "translate_de"
    language = "de"
    sources = ("debian_descriptions", "debian_descriptions_de", *INTERFACES)

    catalogues: tuple[str, ...] = INTERFACES


@dataclass(frozen=True, kw_only=True)
class TranslateFr(DescriptionTranslation):
    """English -> French."""

    name = "translate_fr"
    language = "fr"
    sources = ("debian_descriptions", "debian_descriptions_fr", *INTERFACES)

    catalogues: tuple[str, ...] = INTERFACES


@dataclass(frozen=True, kw_only=True)
class TranslateIt(DescriptionTranslation):
    """English -> Italian: twice as many descriptions, and no interface texts."""

    name = "translate_it"
    language = "it"
    sources = ("debian_descriptions", "debian_descriptions_it")


@dataclass(frozen=True, kw_only=True)
class BibleEs(TextPairs):
    """English -> Spanish, verse by verse: World English Bible, Reina-Valera of 1909; both public domain. Split by chapter.

    The two count verses differently in places, where a verse meets its neighbour's translation.
    """

    name = "bible_es"
    sources = ("bible_web", "bible_sparv")

    source_len: int = 64
    target_len: int = 80

    def pairs(self) -> list[Pair]:
        english, spanish = archive("bible_web"), archive("bible_sparv")
        return verse_pairs(read_verses(english), read_verses(spanish))


@dataclass(frozen=True, kw_only=True)
class TextFiles(TextPairs):
    """A user's own pairs: two files, a sentence a line, line n of one translating line n of the other (as WMT's).

    Without files of their own, validation and test are a tenth of the lines each, decided by the line's text. With
    them, lines that they hold are left out of training.
    """

    name = "text_files"

    source: str = ""
    target: str = ""
    valid_source: str = ""
    valid_target: str = ""
    test_source: str = ""
    test_target: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        own = [self.valid_source, self.valid_target, self.test_source, self.test_target]
        if any(own) and not all(own):
            raise OptionError(
                f"{self.name}: give all of valid_source, valid_target, test_source and test_target, or none of them"
            )

    def pairs(self) -> list[Pair]:
        return self._read(self.source, self.target)

    def parts(self) -> dict[Split, list[Pair]]:
        if not (self.source and self.target):
            raise OptionError(
                f"{self.name}: give source= and target=, two text files with a sentence a line"
            )
        if not self.test_source:
            return split_pairs(unique(self.pairs()))
        test = unique(self._read(self.test_source, self.test_target))
        valid = unique(self._read(self.valid_source, self.valid_target))
        held_out = {key_of(pair) for pair in (*valid, *test)}
        train = [pair for pair in unique(self.pairs()) if key_of(pair) not in held_out]
        return {"train": train, "valid": valid, "test": test}

    def _read(self, source: str, target: str) -> list[Pair]:
        rows = read_parallel(Path(source).expanduser(), Path(target).expanduser())
        return [Pair(left, right, left) for left, right in rows]
