"""Translated messages of Plone, in gettext catalogues."""

from regard.lab.data.sources.rows import count_messages
from regard.lab.data.sources.source import Package, Source

SOURCE = Source(
    name="gettext_plone",
    about="messages of Plone, English, German and French",
    licence="F",
    terms="GPL-2.0",
    packages=(
        Package(
            channel="pypi",
            name="plone-app-locales",
            version="7.0.4",
            file="plone_app_locales-7.0.4-py3-none-any.whl",
            sha256="de96a5d0dc1fe5ab540fa6f993805c09da80a9518aa7a309e8cd1f433e3ae6aa",
            bytes=12492437,
        ),
    ),
    counts={
        "German": 3154,
        "French": 3196,
    },
    count=count_messages,
)
