"""Descriptions of Debian packages in German; they join the English ones by Description-md5."""

from regard.lab.data.sections import count_translations
from regard.lab.data.sources.source import Package, Source

SOURCE = Source(
    name="debian_descriptions_de",
    about="descriptions of Debian packages in German",
    licence="F",
    terms="written by Debian's translators, under the packages' free licences",
    packages=(
        Package(
            channel="debian-index",
            name="Translation-de",
            version="bookworm 12.15",
            file="bookworm-12.15-Translation-de",
            sha256="adac331fc51f9a00c1b4120b4ac87423be2b1f1615d4f288c7cbc2d5258c0650",
            bytes=8017516,
        ),
    ),
    counts={
        "descriptions": 13184,
    },
    count=count_translations,
)
