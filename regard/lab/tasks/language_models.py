"""The next byte of a text, by the bits that a byte costs."""

import math
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import OptionError
from regard.lab.data.own import own_path, read_text_file
from regard.lab.data.python_source import read_modules, stdlib_root
from regard.lab.data.records import Examples
from regard.lab.data.splits import Split, split_of
from regard.lab.data.windows import BYTE_VOCABULARY, ByteWindows, cut, sample
from regard.lab.tasks.task import IGNORED, Batch, Splits, Task, TaskKind, evaluation, ratio_items


@dataclass(frozen=True, kw_only=True)
class NextToken(Task):
    kind: ClassVar[TaskKind] = "language_model"
    vocab_size: ClassVar[int]

    @property
    def facts(self) -> dict[str, Any]:
        return {"vocab_size": self.vocab_size}

    def answer(self, model: nn.Module, batch: Batch) -> Float[Tensor, "B T vocab"]:
        """The model's logits."""
        return model(batch["tokens"], valid=batch["valid"])

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        logits = self.answer(model, batch).float()
        return F.cross_entropy(
            logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=IGNORED
        )


@dataclass(frozen=True, kw_only=True)
class LanguageModelling(NextToken):
    """Causal language modelling, by the bits that a byte costs. Token = byte + 1.

    Training sees every window of its texts. Validation and test are REDUCED to samples of `valid_size` and `test_size`
    windows, drawn by `seed`, in which each byte is predicted once; a number larger than there are windows takes all.
    """

    metric = "bits_per_byte"
    better = "lower"
    baseline = "byte frequencies"
    vocab_size = BYTE_VOCABULARY

    length: int = 256  # tokens in a window
    valid_size: int = 256  # windows
    test_size: int = 512

    @property
    def max_len(self) -> int:
        return self.length

    def windows(
        self, parts: Iterable[Sequence[bytes]], rng: np.random.Generator
    ) -> Iterator[ByteWindows]:
        """The windows of the training, validation and test texts, of the last two samples; one part at a time."""
        for texts, size in zip(parts, (None, self.valid_size, self.test_size), strict=True):
            found = cut(self.name, texts, self.length)
            yield sample(found, size or len(found.tokens), rng)

    def score(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        from torchmetrics import MeanMetric

        nats = MeanMetric().set_dtype(torch.float64)
        asked = 0
        with evaluation(model):
            for batch in batches:
                count = int((batch["labels"] != IGNORED).sum())
                if count:
                    loss = self.loss(model, batch)
                    nats.to(loss.device).update(loss, weight=count)
                    asked += count
        if not asked:
            raise OptionError(f"{self.name}: score needs at least one label, got none")
        return float(nats.compute()) / math.log(2)

    def item_scores(self, model: nn.Module, batches: Iterable[Batch]) -> list[float]:
        """Of each window."""
        bits: list[float] = []
        counts: list[int] = []
        with evaluation(model):
            for batch in batches:
                logits, labels = self.answer(model, batch).float(), batch["labels"]
                nats = F.cross_entropy(
                    logits.transpose(1, 2), labels, ignore_index=IGNORED, reduction="none"
                )
                bits += (nats.double().sum(1) / math.log(2)).tolist()
                counts += (labels != IGNORED).sum(1).tolist()
        return ratio_items(bits, counts)

    def trivial_baseline(self, splits: Splits | None = None) -> float:
        """Bits of the test split under the training split's unigram frequencies (one added to each count)."""
        splits = splits or self.load()
        seen, asked = (part.labels[part.labels != IGNORED] for part in (splits.train, splits.test))
        counts = torch.bincount(seen, minlength=self.vocab_size).double() + 1
        return float(-(counts / counts.sum()).log2()[asked].mean())


def held_out(texts: Mapping[str, bytes], rng: np.random.Generator) -> Iterator[list[bytes]]:
    """Training, validation and test texts: split by a hash of their name, in an order drawn by `rng`."""
    splits: tuple[Split, ...] = ("train", "valid", "test")
    for split in splits:
        names = [name for name in texts if split_of(name) == split]
        yield [texts[names[i]] for i in rng.permutation(len(names))]


@dataclass(frozen=True, kw_only=True)
class StdlibBytes(LanguageModelling):
    """Stdlib bytes: the next byte of the Python standard library's own source.

    Whole files are held out, decided by a hash of their name; repeated files count once. The text is that of the running
    interpreter: results compare only at equal checksums.
    """

    name = "stdlib_bytes"
    sources = ("stdlib",)

    def load(self) -> Splits:
        rng = np.random.default_rng(self.seed)
        parts = self.windows(held_out(read_modules(stdlib_root()), rng), rng)
        notes = {"cpython": platform.python_version()}
        return Splits(*(Examples.windows(*part) for part in parts), notes=notes)


@dataclass(frozen=True, kw_only=True)
class OwnText(LanguageModelling):
    """The next byte of a text file of your own: the first nine tenths train, a twentieth each is for validation and test."""

    name = "own_text"

    path: Path | None = None

    def load(self) -> Splits:
        found = read_text_file(own_path(self.name, self.path, "text_file"))
        texts = ([found[name]] for name in ("train", "valid", "test"))
        parts = self.windows(texts, np.random.default_rng(self.seed))
        return Splits(*(Examples.windows(*part) for part in parts))
