"""Texts with a label, and pairs of texts that belong together or not: classification and matching."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.core import LARGEST, Range, StoredDataError
from regard.lab.data.bibles import read_chapters
from regard.lab.data.debian import Document, read_documents
from regard.lab.data.own import own_path, read_labelled
from regard.lab.data.records import Examples, Integers, Items, Ragged, Records
from regard.lab.data.sources import Files, archive
from regard.lab.data.splits import SPLITS, apart, first_of_each, spaced, split_of, stratified
from regard.lab.data.windows import MASKED_VOCABULARY
from regard.lab.tasks.task import Batch, Classify, Columns, Splits, Task
from regard.models import pad_documents


class ByteText(Classify):
    """Classification of texts by their first bytes.

    Token = byte + 1. The vocabulary has the ids of the masked language models on bytes, start and mask among them, so that a
    model trained to fill in bytes can go on as a classifier with the same embedding.
    """

    vocab_size = MASKED_VOCABULARY

    length: int = 512  # bytes of a text that are read

    def part(self, texts: Sequence[bytes], labels: Integers, rows: Integers) -> Examples:
        return Examples(byte_tokens([texts[row] for row in rows], self.length), labels[rows])


def byte_tokens(texts: Sequence[bytes], length: int) -> Ragged:
    """The first `length` bytes of each text, as tokens."""
    return Ragged.of(
        [np.frombuffer(text[:length], np.uint8).astype(np.int32) + 1 for text in texts]
    )


_EMPTY_LINE = re.compile(rb"\r?\n\r?\n")
HARD = "hard-ham-1"
"""The folder of ham that looks like spam."""


class Email(NamedTuple):
    folder: str
    body: bytes


def read_emails(archive: Files) -> list[Email]:
    """The bodies of the SpamAssassin e-mails: headers name the receiving machine and the filter, and give the answer away.

    A body is what follows the first empty line (RFC 5322, section 2.1), byte for byte: parts of a multipart message keep
    their own headings and encodings.

    All of them, in the order of folders and names.
    """
    return [
        Email(path.split("/")[2], (*_EMPTY_LINE.split(content, maxsplit=1), b"")[1])
        for path, content in archive.items()
        if path.startswith("package/data/") and path.endswith(".txt")
    ]


class Spam(ByteText):
    """Spam: is an e-mail's body spam or ham? Byte-level classification of the SpamAssassin corpus.

    Class 1 is spam. Bodies only: headers give the answer away.

    Balanced: all spam and as many easy ham, drawn by `seed`; a tenth of each for validation and for the test. A body whose
    first `length` bytes equal those of an earlier body is left out after the parts are drawn, and parts are balanced again:
    no body changes its part with `length`, nor in `spam_masked`. Ham that looks like spam is left out. The metric is macro-F1, so that no class counts more. `length` is REDUCED for small machines:
    the Long Range Arena reads 4,000 bytes of other texts (IMDb), and numbers must not be compared.
    """

    name = "spam"
    sources = ("spam_assassin",)
    num_classes = 2
    metric = "macro_f1"
    has_scores = False

    def load(self) -> Splits:
        texts, labels, parts = divided(self.seed)
        new = apart(parts, key=lambda row: texts[row][: self.length])
        balanced = (_balanced(np.array(part, int), labels) for part in new)
        return Splits(*(self.part(texts, labels, part) for part in balanced))

    def compared(self, answers: Tensor, labels: Tensor) -> Columns:
        return answers, labels

    def measure(self, *columns: Tensor) -> float:
        from sklearn.metrics import f1_score

        answers, labels = columns
        return float(f1_score(labels.numpy(), answers.numpy(), average="macro", zero_division=0))


def divided(seed: int) -> tuple[list[bytes], Integers, list[Integers]]:
    """Bodies with their labels, and the indices of training, validation and test; equal ones, compared without white space, once, and none that is empty; as much easy ham as spam."""
    emails = read_emails(archive("spam_assassin"))
    some = (email for email in emails if email.body.strip())
    once = first_of_each(some, key=lambda email: b" ".join(email.body.split()))
    kept = [email for email in once if email.folder != HARD]
    labels = np.array([email.folder.startswith("spam") for email in kept], np.int64)
    spam = np.flatnonzero(labels == 1)
    ham = np.random.default_rng(seed).permutation(np.flatnonzero(labels == 0))
    chosen = np.sort(np.concatenate([spam, ham[: len(spam)]]))
    parts = [chosen[part] for part in stratified(labels[chosen], 0.1, 0.1, seed)]
    return [email.body.lstrip() for email in kept], labels, parts


def _balanced(rows: Integers, labels: Integers) -> Integers:
    """The first rows of each class, equally many of both."""
    of = [rows[labels[rows] == label] for label in (0, 1)]
    return np.concatenate([found[: min(map(len, of))] for found in of])


_WORD = re.compile(r"[a-z0-9]+(?:[.'+#-]+[a-z0-9]+)*[+#]*|[^\sa-z0-9]")


UNKNOWN = 1


class DebianSections(Classify):
    """Debian sections: to which section does a package belong? Its description is a document of sentences of words.

    Token 1 is any word that is not among the most frequent of the training part, 2 and on those, lower case; each punctuation
    mark is a word.

    Eight source packages in ten train, one is for validation, one for the test, decided by the source's name: binary
    packages of one source repeat each other. Longer sentences and documents are cut, and what is then the same as an
    earlier document, token by token, counts once.
    """

    name = "debian_sections"
    sources = ("debian_descriptions",)
    kind = "documents"
    num_classes = 27
    vocab_size: Annotated[int, Range(3, LARGEST, "at least 3")] = 10000  # type: ignore[misc]  # an option here

    max_sentences: int = 10  # of a document
    max_words: int = 40  # of a sentence

    @property
    def max_len(self) -> int:
        return max(self.max_sentences, self.max_words)

    def load(self) -> Splits:
        """Raises StoredDataError for more sections than num_classes."""
        documents = read_documents(archive("debian_descriptions"))
        sections = sorted({document.section for document in documents})
        if len(sections) > self.num_classes:
            raise StoredDataError(
                f"{self.name}: {len(sections)} sections where {self.num_classes} are expected"
            )
        rows = [
            (split_of(one.source), self._cut(one), sections.index(one.section)) for one in documents
        ]
        train = (cut for part, cut, _ in rows if part == "train")
        counts = Counter(word for cut in train for words in cut for word in words)
        frequent = sorted(counts, key=lambda word: (-counts[word], word))[: self.vocab_size - 2]
        ids = {word: 2 + place for place, word in enumerate(frequent)}
        encoded = [
            [
                (tuple(tuple(ids.get(w, UNKNOWN) for w in words) for words in cut), label)
                for part, cut, label in rows
                if part == split
            ]
            for split in SPLITS
        ]
        kept = apart(encoded, key=itemgetter(0))
        return Splits(*map(self._part, kept), notes={"sections": " ".join(sections)})

    def _cut(self, document: Document) -> list[list[str]]:
        sentences = (
            _WORD.findall(sentence.lower()) for sentence in document.sentences[: self.max_sentences]
        )
        return [words[: self.max_words] for words in sentences if words]

    def _part(self, documents: Iterable[tuple[Sequence[Sequence[int]], int]]) -> Records:
        kept = [(sentences, label) for sentences, label in documents if sentences]
        return Records(
            {
                "tokens": Ragged.of([np.concatenate(sentences) for sentences, _ in kept]),
                "lengths": Ragged.of([[*map(len, sentences)] for sentences, _ in kept]),
                "label": np.array([label for _, label in kept]),
            },
            counted=("tokens",),
        )

    def collate(self, items: Items) -> Batch:
        """{tokens [B S T], valid [B S T], labels}."""
        documents = [item["tokens"].split(item["lengths"].tolist()) for item in items]
        tokens, valid = pad_documents(documents)
        labels = torch.stack([item["label"] for item in items])
        return {"tokens": tokens, "valid": valid, "labels": labels}


class BibleChapters(ByteText):
    """Bible chapters: is it the same chapter, once in the King James Version and once in Basic English? By their first bytes.

    Each chapter once with itself and once with another chapter of its book and part, drawn by `seed`.

    Eight chapters in ten train, one is for validation, one for the test, decided by a hash of book and number. A chapter
    that is alone of its book in its part, or that is the same text as another, is left out.

    `length` is REDUCED for small machines: the Long Range Arena reads 4,000 bytes of each text.
    """

    name = "bible_chapters"
    kind = "match"
    num_classes = 2
    sides = {"first": "first_valid", "second": "second_valid"}
    sources = ("bible_kjv", "bible_bbe")

    def load(self) -> Splits:
        """Raises StoredDataError where no book has two chapters."""
        first, second = (read_chapters(archive(name)) for name in self.sources)
        both = sorted(first.keys() & second.keys())
        keys = sorted(first_of_each(both, key=lambda key: spaced(second[key])))
        rng = np.random.default_rng(self.seed)

        def part(split: str) -> Records:
            mine = [key for key in keys if split_of("{}.{}".format(*key)) == split]
            pairs = []
            for key in mine:
                if others := [other for other in mine if other[0] == key[0] and other != key]:
                    pairs += [(key, key), (key, others[rng.integers(len(others))])]
            if not pairs:
                raise StoredDataError(f"{self.name}: no book has two chapters in {split}")
            chosen = [pairs[row] for row in rng.permutation(len(pairs))]
            return Records(
                {
                    "first": byte_tokens([first[a].encode() for a, _ in chosen], self.length),
                    "second": byte_tokens([second[b].encode() for _, b in chosen], self.length),
                    "label": np.array([a == b for a, b in chosen]),
                },
                counted=tuple(self.sides),
            )

        return Splits(*map(part, SPLITS))


class LabelledTexts(ByteText):
    """Texts of your own with a class each, in a .csv or .tsv file.

    `text` and `label` name the columns. A tenth of the texts each, drawn by `seed`, is for validation and test. A text whose
    first `length` bytes equal those of an earlier text is left out.
    """

    name = "labelled_texts"

    path: Path | None = None
    text: str = "text"
    label: str = "label"

    facts = Task.facts  # the data say how many classes there are

    def load(self) -> Splits:
        path = own_path(self, "delimited_texts")
        texts, labels, classes = read_labelled(path, text=self.text, label=self.label)
        if len(classes) < 2:
            raise StoredDataError(f"{self.name}: {path} has one class only")
        parts = apart(
            stratified(labels, 0.1, 0.1, self.seed), key=lambda row: texts[row][: self.length]
        )
        notes = {str(number): name for number, name in enumerate(classes)}
        kept = (self.part(texts, labels, np.array(part, int)) for part in parts)
        return Splits(*kept, notes=notes, facts={"num_classes": len(classes)})

    def read_as(self, splits: Splits) -> str:
        classes = list(splits.notes.values())
        more = ", ..." * (len(classes) > 5)
        return f"{self.text} as bytes, {self.label} target ({len(classes)}: {', '.join(classes[:5])}{more})"
