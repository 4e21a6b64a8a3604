"""Bible chapters: is it the same chapter, once in the King James Version and once in Basic English?"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from regard.core import StoredDataError
from regard.lab.data.bible_chapters import read_chapters
from regard.lab.data.labelled import TextPairs, spaced
from regard.lab.data.records import Records
from regard.lab.data.sources import archive
from regard.lab.data.stdlib import split_of
from regard.lab.tasks.match import Match
from regard.lab.tasks.task import Splits

Chapters = Mapping[tuple[int, int], str]


@dataclass(frozen=True, kw_only=True)
class BibleChapters(Match):
    """Each chapter once with itself and once with another chapter of its book and part, drawn by `seed`.

    Eight chapters in ten train, one is for validation, one for the test, decided by a hash of book and number. A chapter
    that is alone of its book in its part, or that is the same text as another, is left out.
    """

    name = "bible_chapters"
    sources = ("bible_kjv", "bible_bbe")

    def load(self) -> Splits:
        return self.of(read_chapters(archive("bible_kjv")), read_chapters(archive("bible_bbe")))

    def of(self, first: Chapters, second: Chapters) -> Splits:
        seen: dict[bytes, tuple[int, int]] = {}
        for key in sorted(first.keys() & second.keys()):
            seen.setdefault(spaced(second[key].encode()), key)
        keys = sorted(seen.values())
        rng = np.random.default_rng(self.seed)

        def part(split: str) -> Records:
            inside = [key for key in keys if split_of("{}.{}".format(*key)) == split]
            pairs = []
            for key in inside:
                others = [other for other in inside if other[0] == key[0] and other != key]
                if others:
                    pairs += [(key, key), (key, others[rng.integers(len(others))])]
            if not pairs:
                raise StoredDataError(f"{self.name}: no book has two chapters in {split}")
            order = rng.permutation(len(pairs))
            chosen = [pairs[row] for row in order]
            labels = np.array([a == b for a, b in chosen], dtype=np.int64)
            texts = [first[a].encode() for a, _ in chosen], [second[b].encode() for _, b in chosen]
            return self.part(TextPairs(*texts, labels))

        return Splits(part("train"), part("valid"), part("test"))
