"""The Reina-Valera Bible of 1909 as a SWORD module."""

from regard.lab.data.sources.rows import count_verses
from regard.lab.data.sources.source import Package, Source

SOURCE = Source(
    name="bible_sparv",
    about="the Bible in Spanish, by verse",
    licence="E",
    terms="public domain",
    packages=(
        Package(
            channel="debian",
            name="sword-text-sparv",
            version="2.60-1",
            file="sword-text-sparv_2.60-1_all.deb",
            sha256="5c87f9b2bc97457e8a872f5bae7ea7ce59cb3de1dcee73e4d4740451863694cf",
            bytes=2722332,
        ),
    ),
    counts={
        "verses": 31019,
    },
    count=count_verses,
)
