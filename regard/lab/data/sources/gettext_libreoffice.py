"""Translated messages of LibreOffice, in gettext catalogues."""

from regard.lab.data.sources.rows import count_messages
from regard.lab.data.sources.source import Package, Source

SOURCE = Source(
    name="gettext_libreoffice",
    about="messages of LibreOffice, English, German and French",
    licence="F",
    terms="MPL-2.0",
    packages=(
        Package(
            channel="debian",
            name="libreoffice-l10n-de",
            version="4:7.4.7-1+deb12u14",
            file="libreoffice-l10n-de_7.4.7-1+deb12u14_all.deb",
            sha256="aee22c8e3b3c0431f6e1b0bc66f757ba36c860e2651a05eb050fde4897f06548",
            bytes=861940,
        ),
        Package(
            channel="debian",
            name="libreoffice-l10n-fr",
            version="4:7.4.7-1+deb12u14",
            file="libreoffice-l10n-fr_7.4.7-1+deb12u14_all.deb",
            sha256="111da5e1b8379dc58a127ef76ef85e2b6819da5cb2c5fe73d13b25a0437f988c",
            bytes=860388,
        ),
    ),
    counts={
        "German": 17421,
        "French": 17269,
    },
    count=count_messages,
)
