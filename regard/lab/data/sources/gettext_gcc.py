"""Translated messages of the GNU compilers, in gettext catalogues."""

from regard.lab.data.sources.rows import count_messages
from regard.lab.data.sources.source import Package, Source

SOURCE = Source(
    name="gettext_gcc",
    about="messages of the GNU compilers, English, German and French",
    licence="F",
    terms="GPL-3.0",
    packages=(
        Package(
            channel="debian",
            name="gcc-12-locales",
            version="12.2.0-14+deb12u1",
            file="gcc-12-locales_12.2.0-14+deb12u1_all.deb",
            sha256="a701516b5e34086f478b0a329dfd9dd8e1695e8bac5917a6b162a87719abe28f",
            bytes=1759384,
        ),
    ),
    counts={
        "German": 15202,
        "French": 15398,
    },
    count=count_messages,
)
