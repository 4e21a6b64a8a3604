"""Texts with a label, and pairs of texts that belong together or not: classification and matching."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.core import OptionError, StoredDataError
from regard.lab.data.bibles import read_chapters
from regard.lab.data.checks import check_sizes
from regard.lab.data.debian import Document, read_documents
from regard.lab.data.own import own_path, read_delimited_texts, read_saved
from regard.lab.data.received import MOST_CLASSES
from regard.lab.data.records import Examples, Ragged, Records
from regard.lab.data.sources import archive
from regard.lab.data.splits import apart, spaced, split_of
from regard.lab.data.texts import HARD, Email, read_emails, unique_emails
from regard.lab.data.windows import MASKED_VOCABULARY
from regard.lab.tasks.classify import Classify, Indices, stratified
from regard.lab.tasks.task import Batch, Splits, count_valid, padded

if TYPE_CHECKING:
    from torchmetrics import Metric


@dataclass(frozen=True, kw_only=True)
class ByteText(Classify):
    """Classification of texts by their first bytes.

    Token = byte + 1. The vocabulary has the ids of the masked language models on bytes, start and mask among them, so that a
    model trained to fill in bytes can go on as a classifier with the same embedding.
    """

    vocab_size = MASKED_VOCABULARY

    length: int = 512  # bytes of a text that are read

    @property
    def max_len(self) -> int:
        return self.length

    def part(
        self, texts: Sequence[bytes], labels: NDArray[np.integer], rows: NDArray[np.integer]
    ) -> Examples:
        tokens, lengths = byte_tokens([texts[row] for row in rows], self.length)
        return Examples(tokens, lengths, labels[rows])


def byte_tokens(
    texts: Sequence[bytes], length: int
) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """The first `length` bytes of all texts end to end, as tokens, and how many of each."""
    check_sizes("byte_tokens", length=length)
    cut = [text[:length] for text in texts]
    tokens = np.frombuffer(b"".join(cut), dtype=np.uint8).astype(np.int32) + 1
    return tokens, np.array([len(text) for text in cut], dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class Match(Classify):
    """Matching: do two texts belong together? Byte-level classification of pairs, by accuracy.

    Token = byte + 1. `length` is REDUCED for small machines: the Long Range Arena reads 4,000 bytes of each text.
    """

    kind = "match"
    num_classes = 2
    vocab_size = MASKED_VOCABULARY

    length: int = 512  # bytes of each text that are read

    @property
    def max_len(self) -> int:
        return self.length

    def part(
        self, first: Sequence[bytes], second: Sequence[bytes], labels: NDArray[np.integer]
    ) -> Records:
        sides = [Ragged(*byte_tokens(texts, self.length)) for texts in (first, second)]
        columns: dict[str, Any] = {"first": sides[0], "second": sides[1], "label": labels}
        return Records(columns, counted=("first", "second"))

    def answer(self, model: nn.Module, batch: Batch) -> Float[Tensor, "B num_classes"]:
        return model(
            batch["first"],
            batch["second"],
            first_valid=batch["first_valid"],
            second_valid=batch["second_valid"],
        )

    def collate(self, items: Sequence[Mapping[str, Tensor]]) -> Batch:
        """{first, first_valid, second, second_valid, labels}."""
        batch: Batch = {"labels": torch.stack([item["label"] for item in items])}
        for name in ("first", "second"):
            batch[name], batch[f"{name}_valid"] = padded([item[name] for item in items])
        return batch

    def count(self, batch: Batch) -> int:
        return sum(count_valid(batch[name], batch[f"{name}_valid"]) for name in ("first", "second"))


@dataclass(frozen=True, kw_only=True)
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

    def load(self) -> Splits:
        return self.of(read_emails(archive("spam_assassin")))

    def of(self, emails: list[Email]) -> Splits:
        found = divided(emails, self.seed)
        rows = [found.train, found.valid, found.test]
        parts = apart(rows, key=lambda row: found.texts[row][: self.length])
        balanced = (_balanced(np.array(part, int), found.labels) for part in parts)
        return Splits(*(self.part(found.texts, found.labels, part) for part in balanced))

    def meter(self) -> "Metric":
        from torchmetrics.classification import MulticlassF1Score

        return MulticlassF1Score(num_classes=2, average="macro")


class Divided(NamedTuple):
    """Texts with their labels, and the indices of each part."""

    texts: list[bytes]
    labels: Indices
    train: Indices
    valid: Indices
    test: Indices


def divided(emails: list[Email], seed: int) -> Divided:
    """Bodies in parts, equal ones once; as much easy ham as spam, drawn by `seed`."""
    kept = [email for email in unique_emails(emails) if email.folder != HARD]
    labels = np.array([email.spam for email in kept], dtype=np.int64)
    spam = np.flatnonzero(labels == 1)
    ham = np.random.default_rng(seed).permutation(np.flatnonzero(labels == 0))
    chosen = np.sort(np.concatenate([spam, ham[: len(spam)]]))
    train, valid, test = (chosen[part] for part in stratified(labels[chosen], 0.1, 0.1, seed))
    texts = [email.body.lstrip() for email in kept]
    return Divided(texts, labels, train, valid, test)


def _balanced(rows: Indices, labels: Indices) -> Indices:
    """The first rows of each class, equally many of both."""
    of = [rows[labels[rows] == label] for label in (0, 1)]
    return np.concatenate([found[: min(map(len, of))] for found in of])


_WORD = re.compile(r"[a-z0-9]+(?:[.'+#-]+[a-z0-9]+)*[+#]*|[^\sa-z0-9]")


UNKNOWN = 1


class _Encoded(NamedTuple):
    sentences: tuple[tuple[int, ...], ...]
    section: str


@dataclass(frozen=True, kw_only=True)
class DebianSections(Classify):
    """Debian sections: to which section does a package belong? Its description is a document of sentences of words.

    Token 1 is any word that is not among the most frequent of the training part, 2 and on those, lower case.

    Eight source packages in ten train, one is for validation, one for the test, decided by the source's name: binary
    packages of one source repeat each other. Longer sentences and documents are cut, and what is then the same as an
    earlier document, token by token, counts once. `num_sources` takes so many sources only, drawn by `seed` (None: all).
    """

    name = "debian_sections"
    sources = ("debian_descriptions",)
    kind = "documents"
    num_classes = 27
    vocab_size: int = 10000  # type: ignore[misc]  # an option here, a constant of the other tasks

    max_sentences: int = 10  # of a document
    max_words: int = 40  # of a sentence
    num_sources: int | None = None

    def __post_init__(self) -> None:
        if self.vocab_size < 3:
            raise OptionError(f"{self.name}: vocab_size ({self.vocab_size!r}) must be at least 3")

    @property
    def max_len(self) -> int:
        return max(self.max_sentences, self.max_words)

    def load(self) -> Splits:
        documents = read_documents(archive("debian_descriptions"))
        if self.num_sources is not None:
            rng = np.random.default_rng(self.seed)
            sources = rng.permutation(sorted({document.source for document in documents}))
            chosen = set(sources[: self.num_sources])
            documents = [document for document in documents if document.source in chosen]
        return self.of(documents)

    def of(self, documents: Sequence[Document]) -> Splits:
        """Raises StoredDataError for more sections than num_classes."""
        sections = sorted({document.section for document in documents})
        if len(sections) > self.num_classes:
            raise StoredDataError(
                f"{self.name}: {len(sections)} sections where {self.num_classes} are expected"
            )
        splits = [
            [document for document in documents if split_of(document.source) == split]
            for split in ("train", "valid", "test")
        ]
        counts = Counter(
            word for document in splits[0] for sentence in self._cut(document) for word in sentence
        )
        frequent = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        ids = {word: 2 + place for place, (word, _) in enumerate(frequent[: self.vocab_size - 2])}
        encoded = [[self._encoded(document, ids) for document in part] for part in splits]
        parts = apart(encoded, key=lambda document: document.sentences)
        train, valid, test = (self._part(part, sections) for part in parts)
        return Splits(train, valid, test, notes={"sections": " ".join(sections)})

    def _cut(self, document: Document) -> list[list[str]]:
        sentences = map(words_of, document.sentences[: self.max_sentences])
        return [words[: self.max_words] for words in sentences if words]

    def _encoded(self, document: Document, ids: Mapping[str, int]) -> "_Encoded":
        found = (tuple(ids.get(word, UNKNOWN) for word in words) for words in self._cut(document))
        return _Encoded(tuple(found), document.section)

    def _part(self, documents: Iterable["_Encoded"], sections: Sequence[str]) -> Records:
        kept = [document for document in documents if document.sentences]
        if not kept:
            raise OptionError(f"{self.name}: a part is empty. Take more sources.")
        tokens = [[token for words in document.sentences for token in words] for document in kept]
        lengths = [[len(words) for words in document.sentences] for document in kept]
        return Records(
            {
                "tokens": Ragged.of(tokens),
                "lengths": Ragged.of(lengths),
                "label": np.array([sections.index(document.section) for document in kept]),
            },
            counted=("tokens",),
        )

    def collate(self, items: Sequence[Mapping[str, Tensor]]) -> Batch:
        """{tokens [B S T], valid [B S T], labels}."""
        lengths = [item["lengths"].tolist() for item in items]
        S = max(len(of) for of in lengths)
        T = max(max(of) for of in lengths)
        counts = torch.tensor([of + [0] * (S - len(of)) for of in lengths])
        valid = torch.arange(T) < counts[..., None]
        tokens = torch.zeros(valid.shape, dtype=torch.long)
        tokens[valid] = torch.cat([item["tokens"] for item in items])
        labels = torch.stack([item["label"] for item in items])
        return {"tokens": tokens, "valid": valid, "labels": labels}


def words_of(sentence: str) -> list[str]:
    """Lower-case words; each punctuation mark is a word."""
    return _WORD.findall(sentence.lower())


Chapters = Mapping[tuple[int, int], str]


@dataclass(frozen=True, kw_only=True)
class BibleChapters(Match):
    """Bible chapters: is it the same chapter, once in the King James Version and once in Basic English?

    Each chapter once with itself and once with another chapter of its book and part, drawn by `seed`.

    Eight chapters in ten train, one is for validation, one for the test, decided by a hash of book and number. A chapter
    that is alone of its book in its part, or that is the same text as another, is left out.
    """

    name = "bible_chapters"
    sources = ("bible_kjv", "bible_bbe")

    def load(self) -> Splits:
        return self.of(read_chapters(archive("bible_kjv")), read_chapters(archive("bible_bbe")))

    def of(self, first: Chapters, second: Chapters) -> Splits:
        """Raises StoredDataError where no book has two chapters."""
        seen: dict[bytes, tuple[int, int]] = {}
        for key in sorted(first.keys() & second.keys()):
            seen.setdefault(spaced(second[key].encode()), key)
        keys = sorted(seen.values())
        rng = np.random.default_rng(self.seed)

        def part(split: str) -> Records:
            inside = [key for key in keys if split_of("{}.{}".format(*key)) == split]
            pairs = []
            for key in inside:
                others = [other for other in inside if other[0] == key[0] and other != key]
                if others:
                    pairs += [(key, key), (key, others[rng.integers(len(others))])]
            if not pairs:
                raise StoredDataError(f"{self.name}: no book has two chapters in {split}")
            order = rng.permutation(len(pairs))
            chosen = [pairs[row] for row in order]
            labels = np.array([a == b for a, b in chosen], dtype=np.int64)
            texts = [first[a].encode() for a, _ in chosen], [second[b].encode() for _, b in chosen]
            return self.part(*texts, labels)

        return Splits(part("train"), part("valid"), part("test"))


@dataclass(frozen=True)
class LabelledSplits(Splits):
    """Splits of texts whose classes are read off the data; `notes` names them."""

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"num_classes": len(self.notes)}


@dataclass(frozen=True, kw_only=True)
class LabelledTexts(ByteText):
    """Texts of your own with a class each, in a .csv or .tsv file, or saved by the `datasets` library.

    `text` and `label` name the columns. The splits are the folder's: train, validation, test. For one that is missing, and for a file, a tenth of
    the training part is drawn by `seed`. A text whose first `length` bytes equal those of an earlier text is left out.
    """

    name = "labelled_texts"
    num_classes = MOST_CLASSES  # at most; how many there are is read off the data

    path: Path | None = None
    text: str = "text"
    label: str = "label"

    @property
    def facts(self) -> dict[str, Any]:
        return {"vocab_size": self.vocab_size}

    def load(self) -> Splits:
        path = own_path(self.name, self.path, "hugging_face")
        read = read_delimited_texts if path.suffix in (".csv", ".tsv") else read_saved
        found = dict(read(path, text=self.text, label=self.label))
        whole = found.get("train") or found.get("all")
        if whole is None or len(whole.classes) < 2:
            held = "no part train" if whole is None else "one class only"
            raise StoredDataError(f"{self.name}: {path} has {held}")
        valid, test = found.get("validation") or found.get("valid"), found.get("test")
        shares = (0.0 if valid else 0.1, 0.0 if test else 0.1)
        rows = stratified(whole.labels, *shares, self.seed)
        parts = [
            [(own.texts[row], own.labels[row]) for row in of]
            for own, of in (
                (whole, rows[0]),
                (valid, range(len(valid.texts))) if valid else (whole, rows[1]),
                (test, range(len(test.texts))) if test else (whole, rows[2]),
            )
        ]
        kept = apart(parts, key=lambda item: item[0][: self.length])
        classes = dict(zip(map(str, range(len(whole.classes))), whole.classes, strict=True))
        return LabelledSplits(*map(self._part, kept), notes=classes)

    def read_as(self, splits: Splits) -> str:
        classes = list(splits.notes.values())
        more = ", ..." * (len(classes) > 5)
        return f"{self.text} as bytes, {self.label} target ({len(classes)}: {', '.join(classes[:5])}{more})"

    def _part(self, items: Sequence[tuple[bytes, int]]) -> Examples:
        labels = np.array([label for _, label in items], dtype=np.int64)
        return self.part([text for text, _ in items], labels, np.arange(len(items)))
