"""Translated messages of Django, in gettext catalogues."""

from regard.lab.data.sources.rows import count_messages
from regard.lab.data.sources.source import Package, Source

SOURCE = Source(
    name="gettext_django",
    about="messages of Django, English, German and French",
    licence="E",
    terms="BSD-3-Clause",
    packages=(
        Package(
            channel="pypi",
            name="django",
            version="5.2.19",
            file="django-5.2.19-py3-none-any.whl",
            sha256="5965d974a5218a2b68a11dd1276434707f23886525c23f0598eccedaf4f4ca00",
            bytes=8319631,
        ),
    ),
    counts={
        "German": 693,
        "French": 716,
    },
    count=count_messages,
)
