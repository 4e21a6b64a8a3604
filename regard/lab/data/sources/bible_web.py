"""The World English Bible as a SWORD module."""

from regard.lab.data.sources.rows import count_verses
from regard.lab.data.sources.source import Package, Source

SOURCE = Source(
    name="bible_web",
    about="the Bible in modern English, by verse",
    licence="E",
    terms="public domain",
    packages=(
        Package(
            channel="debian",
            name="sword-text-web",
            version="426.0-1",
            file="sword-text-web_426.0-1_all.deb",
            sha256="930b23670b352f0829a306501de4bebb5e654a2df02cde2cbe86b802177868e1",
            bytes=3956428,
        ),
    ),
    counts={
        "verses": 37379,
    },
    count=count_verses,
)
