"""The next byte of a text, by the bits that a byte costs."""

import math
import os
import platform
import sysconfig
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.random import Generator, default_rng
from torch import Tensor, nn

from regard.core import OptionError
from regard.lab.data.own import own_path, read_text_file
from regard.lab.data.records import Examples, Records
from regard.lab.data.splits import SPLITS, first_of_each, split_of
from regard.lab.data.windows import BYTE_VOCABULARY, Windows, cut
from regard.lab.tasks.task import IGNORED, Batch, Columns, Splits, Task


def bits_of(logits: Float[Tensor, "B T vocab"], labels: Int[Tensor, "B T"]) -> Float[Tensor, "B"]:
    """Cross-entropy of each row, the sum over its labels."""
    nats = F.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, reduction="none"
    )
    return nats.view_as(labels).double().sum(1) / math.log(2)


def frequency_bits(
    seen: Int[Tensor, "n"], asked: Int[Tensor, "m"], size: int
) -> Float[Tensor, "m"]:
    """Bits of each token under the frequencies of those seen, one added to each count."""
    counts = torch.bincount(seen, minlength=size).double() + 1
    return -(counts / counts.sum()).log2()[asked]


class Draws(NamedTuple):
    """The generators that a task's data are drawn with, from its seed."""

    rng: Generator
    torch: torch.Generator


class LanguageModelling(Task):
    """Causal language modelling, by the bits that a byte costs. Token = byte + 1.

    Training sees every window of its texts. Validation and test are REDUCED to samples of `valid_size` and `test_size`
    windows, drawn by `seed`, in which each byte is predicted once; a number larger than there are windows takes all.
    """

    kind = "language_model"
    metric = "bits_per_byte"
    better = "lower"
    baseline = "byte frequencies"
    notes: ClassVar[Mapping[str, str]] = {}  # what the data depend on besides the options
    vocab_size = BYTE_VOCABULARY

    length: int = 256  # tokens in a window
    valid_size: int = 256  # windows
    test_size: int = 512

    @abstractmethod
    def texts(self, rng: Generator) -> Iterable[Sequence[bytes]]:
        """The texts of training, validation and test, drawn on as they are read."""

    def rows(self, windows: Windows, training: bool, draw: Draws) -> Records:
        """Items of windows: tokens with the byte that follows each."""
        return Examples.windows(windows.tokens, windows.labels)

    def load(self) -> Splits:
        draw = Draws(default_rng(self.seed), torch.Generator().manual_seed(self.seed))
        parts = list[Records]()
        for texts in self.texts(draw.rng):
            found = cut(self.name, texts, self.length)
            size = (len(found.tokens), self.valid_size, self.test_size)[len(parts)]
            order = draw.rng.permutation(len(found.tokens))[:size]
            parts.append(self.rows(Windows._make(part[order] for part in found), not parts, draw))
        return Splits(*parts, notes=self.notes)

    def columns(self, model: nn.Module, batch: Batch) -> Columns:
        """Bits of each window, and the bytes that they are of."""
        labels = batch["labels"]
        return bits_of(self.answer(model, batch), labels), (labels != IGNORED).sum(1)

    def trivial_baseline(self, splits: Splits) -> float:
        """Bits of the test split under the training split's unigram frequencies."""
        seen, asked = (part.labels[part.labels != IGNORED] for part in (splits.train, splits.test))
        return float(frequency_bits(seen, asked, self.vocab_size).mean())


LEFT_OUT = frozenset(
    {
        "__pycache__",
        "site-packages",  # not the library: what was installed beside it
        "dist-packages",
        "test",  # tests, of the library and of its packages
        "tests",
        "idle_test",
        "idlelib",  # an application
        "turtledemo",
        "encodings",  # generated tables, much like one another
        "pydoc_data",  # documentation text
    }
)
"""Names of folders that are not read, at any depth."""


_GENERATED = ("_sysconfigdata", "config-")  # describe one build of the interpreter


def stdlib_root() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def read_modules(root: Path) -> dict[str, bytes]:
    """ "json/decoder.py" -> its bytes, in the order of the names; empty files and repetitions are left out."""
    names = list[str]()
    for folder, folders, files in os.walk(root):
        folders[:] = [
            name for name in folders if name not in LEFT_OUT and not name.startswith(_GENERATED)
        ]
        names += (
            Path(folder, name).relative_to(root).as_posix()
            for name in files
            if name.endswith(".py") and not name.startswith(_GENERATED)
        )
    texts = ((name, (root / name).read_bytes()) for name in sorted(names))
    once = first_of_each(texts, key=itemgetter(1))
    modules = {name: text for name, text in once if text.strip()}
    if not modules:
        raise OptionError(
            f"stdlib_bytes: no Python source under {root}. This interpreter comes without it; use one that has its library as .py files."
        )
    return modules


class OfStdlib:
    """Whole files are held out, decided by a hash of their name; repeated files count once."""

    sources: ClassVar[tuple[str, ...]] = ("stdlib",)
    notes: ClassVar[Mapping[str, str]] = {"cpython": platform.python_version()}

    def texts(self, rng: Generator) -> Iterator[list[bytes]]:
        found = read_modules(stdlib_root())
        for split in SPLITS:
            names = [name for name in found if split_of(name) == split]
            yield [found[names[i]] for i in rng.permutation(len(names))]


class StdlibBytes(OfStdlib, LanguageModelling):
    """Stdlib bytes: the next byte of the Python standard library's own source.

    Whole files are held out, decided by a hash of their name; repeated files count once. The text is that of the running
    interpreter: results compare only at equal checksums.
    """

    name = "stdlib_bytes"


class OwnText(LanguageModelling):
    """The next byte of a text file of your own: the first nine tenths train, a twentieth each is for validation and test."""

    name = "own_text"

    path: Path | None = None

    def texts(self, rng: Generator) -> Iterator[list[bytes]]:
        for text in read_text_file(own_path(self, "text_file")).values():
            yield [text]
