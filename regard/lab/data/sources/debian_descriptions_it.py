"""Descriptions of Debian packages in Italian; they join the English ones by Description-md5."""

from regard.lab.data.sections import count_translations
from regard.lab.data.sources.source import Package, Source

SOURCE = Source(
    name="debian_descriptions_it",
    about="descriptions of Debian packages in Italian",
    licence="F",
    terms="written by Debian's translators, under the packages' free licences",
    packages=(
        Package(
            channel="debian-index",
            name="Translation-it",
            version="bookworm 12.15",
            file="bookworm-12.15-Translation-it",
            sha256="f2010961f0968127812de8484ecead4f45b25b2cb6aeb788f9f25753fbd5cff7",
            bytes=26890950,
        ),
    ),
    counts={
        "descriptions": 47447,
    },
    count=count_translations,
)
