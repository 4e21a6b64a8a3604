"""Shakespeare permuted: bytes of his plays and poems, asked for in drawn orders."""

from collections.abc import Mapping
from dataclasses import dataclass

from regard.lab.data.plays import read_works
from regard.lab.data.sources import archive
from regard.lab.tasks.permuted import PermutedLanguageModelling


@dataclass(frozen=True, kw_only=True)
class ShakespearePermuted(PermutedLanguageModelling):
    """Whole works are held out. `regard data get shakespeare` fetches the text."""

    name = "shakespeare_permuted"
    sources = ("shakespeare",)

    def read(self) -> Mapping[str, bytes]:
        works = read_works(archive("shakespeare"))
        return {name: text.encode("latin-1") for name, text in works.items()}
