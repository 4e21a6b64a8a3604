"""20 Newsgroups in Orange's table: `class <tab> text` a line, below three lines of head.

The posts were cleaned by whoever made the table: lower-case letters and single spaces, no sentence ends. What is left of
addresses and organisations still stands in the text, which makes it easier than the raw posts.
"""

from collections.abc import Mapping
from typing import Literal

from regard.core import StoredDataError
from regard.lab.data.archives import Archive
from regard.lab.data.labelled import Texts, apart, label, spaced

_HEAD_LINES = 3


def read_newsgroups(archive: Archive, part: Literal["train", "test"]) -> Texts:
    """Every post, also the empty and the repeated ones. Raises StoredDataError for a line without a tab."""
    table = archive.read(f"orangecontrib/text/datasets/20newsgroups-{part}.tab")
    texts, names = [], []
    for number, line in enumerate(table.split(b"\n")):
        if number < _HEAD_LINES or not line.strip():
            continue
        name, tab, text = line.rstrip(b"\r").partition(b"\t")
        if not tab:
            raise StoredDataError(f"20newsgroups-{part}.tab: line {number + 1} has no tab")
        texts.append(text)
        names.append(name.decode())
    return label(texts, names)


def unique_newsgroups(archive: Archive) -> dict[str, Texts]:
    """Train and test without repetitions; a text of both stays in train. Texts under 20 letters are left out."""
    parts = {part: read_newsgroups(archive, part) for part in ("train", "test")}
    posts = [
        [
            (text, found.classes[number])
            for text, number in zip(found.texts, found.labels, strict=True)
            if len(text) >= 20
        ]
        for found in parts.values()
    ]
    kept = apart(posts, key=lambda post: spaced(post[0]))
    return {
        part: label([text for text, _ in of], [name for _, name in of], parts["train"].classes)
        for part, of in zip(parts, kept, strict=True)
    }


def count_newsgroups(archive: Archive) -> Mapping[str, int]:
    train, test = read_newsgroups(archive, "train"), read_newsgroups(archive, "test")
    kept = unique_newsgroups(archive)
    return {
        "train": len(train.texts),
        "test": len(test.texts),
        "classes": len(train.classes),
        "unique train": len(kept["train"].texts),
        "unique test": len(kept["test"].texts),
    }
