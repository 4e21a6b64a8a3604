"""Debian sections: in which section does a package stand? Its description, a document of sentences of words."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.core import OptionError, StoredDataError
from regard.lab.data.checks import check_seed, check_sizes
from regard.lab.data.labelled import apart
from regard.lab.data.records import Ragged, Records
from regard.lab.data.sections import Document, read_documents
from regard.lab.data.sources import archive
from regard.lab.data.stdlib import split_of
from regard.lab.tasks.classify import Classify
from regard.lab.tasks.task import Batch, Splits

_WORD = re.compile(r"[a-z0-9]+(?:[.'+#-]+[a-z0-9]+)*[+#]*|[^\sa-z0-9]")
UNKNOWN = 1


class _Encoded(NamedTuple):
    sentences: tuple[tuple[int, ...], ...]
    section: str


@dataclass(frozen=True, kw_only=True)
class DebianSections(Classify):
    """Token 1 is any word that is not among the most frequent of the training part, 2 and on those, lower case.

    Eight source packages in ten train, one is for validation, one for the test, decided by the source's name: binary
    packages of one source repeat each other. Longer sentences and documents are cut, and what is then the same as an
    earlier document, token by token, counts once. `num_sources` takes so many sources only, drawn by `seed` (None: all).
    """

    name = "debian_sections"
    sources = ("debian_descriptions",)
    kind = "documents"
    num_classes = 27
    vocab_size: int = 10000  # type: ignore[misc]  # an option here, a constant of the other tasks

    max_sentences: int = 10
    max_words: int = 40
    num_sources: int | None = None

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        check_sizes(self.name, max_sentences=self.max_sentences, max_words=self.max_words)
        if self.num_sources is not None:
            check_sizes(self.name, num_sources=self.num_sources)
        if not isinstance(self.vocab_size, int) or self.vocab_size < 3:
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
    """Lower case; marks stand alone."""
    return _WORD.findall(sentence.lower())
