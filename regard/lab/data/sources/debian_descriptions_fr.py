"""Descriptions of Debian packages in French; they join the English ones by Description-md5."""

from regard.lab.data.sections import count_translations
from regard.lab.data.sources.source import Package, Source

SOURCE = Source(
    name="debian_descriptions_fr",
    about="descriptions of Debian packages in French",
    licence="F",
    terms="written by Debian's translators, under the packages' free licences",
    packages=(
        Package(
            channel="debian-index",
            name="Translation-fr",
            version="bookworm 12.15",
            file="bookworm-12.15-Translation-fr",
            sha256="1b5ce81d2dac68fb27997899d9e092b8281f984baa658c22139d8f2640aec6cc",
            bytes=13260065,
        ),
    ),
    counts={
        "descriptions": 19552,
    },
    count=count_translations,
)
