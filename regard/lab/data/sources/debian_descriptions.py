"""The package index of Debian 12: sections, sources, and descriptions in English."""

from regard.lab.data.sections import count_descriptions
from regard.lab.data.sources.source import Package, Source

SOURCE = Source(
    name="debian_descriptions",
    about="descriptions of Debian packages",
    licence="F",
    terms="written for the packages, under their free licences",
    packages=(
        Package(
            channel="debian-index",
            name="Packages",
            version="bookworm 12.15",
            file="bookworm-12.15-Packages",
            sha256="515e692f2c4121c6fcec444ef100cc18f79a991910615f3a88c8b7becfc94d2f",
            bytes=50060337,
        ),
        Package(
            channel="debian-index",
            name="Translation-en",
            version="bookworm 12.15",
            file="bookworm-12.15-Translation-en",
            sha256="62f59c3cdca9786e4f7adf9002f9f5729a684adcb4667e58e448dec9b5a46c7f",
            bytes=32699363,
        ),
    ),
    counts={
        "packages": 63436,
        "descriptions": 61486,
        "sections": 58,
        "sections of 500 packages": 27,
        "packages in these": 57033,
        "documents in these": 54724,
        "sources of these": 31645,
        "documents of 3 sentences": 48289,
    },
    count=count_descriptions,
)
