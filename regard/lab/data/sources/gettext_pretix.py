"""Translated messages of pretix, in gettext catalogues."""

from regard.lab.data.sources.rows import count_messages
from regard.lab.data.sources.source import Package, Source

SOURCE = Source(
    name="gettext_pretix",
    about="messages of pretix, English, German and French",
    licence="F",
    terms="AGPL-3.0 with additional terms",
    packages=(
        Package(
            channel="pypi",
            name="pretix",
            version="2026.8.0",
            file="pretix-2026.8.0-py3-none-any.whl",
            sha256="a78932e698778d873530d67f25a57c28d1c09b1bfb1a22ec817c00d90397db85",
            bytes=39528456,
        ),
    ),
    counts={
        "German": 6288,
        "French": 6224,
    },
    count=count_messages,
)
