"""Translated messages of Wagtail, in gettext catalogues."""

from regard.lab.data.sources.rows import count_messages
from regard.lab.data.sources.source import Package, Source

SOURCE = Source(
    name="gettext_wagtail",
    about="messages of Wagtail, English, German and French",
    licence="E",
    terms="BSD-3-Clause",
    packages=(
        Package(
            channel="pypi",
            name="wagtail",
            version="8.0.1",
            file="wagtail-8.0.1-py3-none-any.whl",
            sha256="1e6ad5c7891a54efce1400e168298b5a2cc343b642cee89c31bf5ec30c98b26c",
            bytes=9841588,
        ),
    ),
    counts={
        "German": 1600,
        "French": 1592,
    },
    count=count_messages,
)
