"""Language modelling in drawn orders, by the bits that a predicted byte costs."""

import platform
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from regard.lab.data.checks import check_seed, check_sizes
from regard.lab.data.python_source import read_modules, stdlib_root
from regard.lab.data.records import Ragged, Records
from regard.lab.data.splits import Split, split_of
from regard.lab.data.synthetic import CONTEXT, draw_orders
from regard.lab.data.windows import BYTE_VOCABULARY, START, cut, sample
from regard.lab.tasks.language_models import LanguageModelling
from regard.lab.tasks.task import IGNORED, Batch, Splits


@dataclass(frozen=True, kw_only=True)
class PermutedLanguageModelling(LanguageModelling):
    """Token = byte + 1. One in `k` is a target, predicted from all context and from the targets before it in the window's own order.

    The batch holds `order`, the rank of each token, -1 for context; labels are the tokens themselves, not the next. The
    order of a window is part of the data: the same at every visit. Whole texts are held out, decided by a hash of their
    name; validation and test are REDUCED to samples of windows. The bits are those of bytes that see both sides, and
    must not be compared with left-to-right ones.
    """

    kind = "permutation_language_model"
    vocab_size = BYTE_VOCABULARY

    length: int = 256  # tokens in a window
    valid_size: int = 256  # windows
    test_size: int = 512
    k: int = 6

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        check_sizes(
            self.name,
            length=self.length,
            valid_size=self.valid_size,
            test_size=self.test_size,
            k=self.k,
        )

    @property
    def max_len(self) -> int:
        return self.length

    @abstractmethod
    def read(self) -> Mapping[str, bytes]:
        """Name -> text."""

    def load(self) -> Splits:
        texts = self.read()
        rng = np.random.default_rng(self.seed)

        def part(split: Split, size: int | None) -> Records:
            names = [name for name in texts if split_of(name) == split]
            windows = cut(
                self.name, [texts[names[i]] for i in rng.permutation(len(names))], self.length
            )
            return self._ordered(sample(windows, size or len(windows.tokens), rng).tokens, rng)

        return Splits(
            part("train", None), part("valid", self.valid_size), part("test", self.test_size)
        )

    def _ordered(self, tokens: np.ndarray, rng: np.random.Generator) -> Records:
        drawn = draw_orders(tokens, self.k, rng, never=(START,))
        lengths = np.full(len(tokens), self.length)
        columns = {"tokens": tokens, "order": drawn.order, "label": drawn.labels}
        return Records(
            {name: Ragged(column.ravel(), lengths) for name, column in columns.items()},
            counted=("tokens",),
        )

    def collate(self, items: Sequence[Mapping[str, Tensor]]) -> Batch:
        order = [item["order"] for item in items]
        padded = pad_sequence(order, batch_first=True, padding_value=CONTEXT)
        return super().collate(items) | {"order": padded}

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        logits = model(batch["tokens"], order=batch["order"], valid=batch["valid"]).float()
        return F.cross_entropy(
            logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=IGNORED
        )


@dataclass(frozen=True, kw_only=True)
class StdlibPermuted(PermutedLanguageModelling):
    """Stdlib permuted: bytes of the Python standard library's source, predicted in drawn orders.

    The text is that of the running interpreter, as in `stdlib_bytes`: results compare only at equal checksums.
    """

    name = "stdlib_permuted"
    sources = ("stdlib",)

    def read(self) -> Mapping[str, bytes]:
        return read_modules(stdlib_root())

    def load(self) -> Splits:
        return replace(super().load(), notes={"cpython": platform.python_version()})
