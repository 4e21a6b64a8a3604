"""Translated messages of Krita, in gettext catalogues."""

from regard.lab.data.sources.rows import count_messages
from regard.lab.data.sources.source import Package, Source

SOURCE = Source(
    name="gettext_krita",
    about="messages of Krita, English, German and French",
    licence="F",
    terms="GPL",
    packages=(
        Package(
            channel="debian",
            name="krita-l10n",
            version="1:5.1.5+dfsg-2+deb12u1",
            file="krita-l10n_5.1.5+dfsg-2+deb12u1_all.deb",
            sha256="ad2b1d244e1021b4f56637b9e9109d5d512c8b457d13945cfae8296e294da1ac",
            bytes=3013204,
        ),
    ),
    counts={
        "German": 3765,
        "French": 6630,
    },
    count=count_messages,
)
