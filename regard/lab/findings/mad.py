"""mad: six small tasks of manipulating tokens (Poli et al. 2024, arXiv 2403.17844), which predict how mechanisms rank when large."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.lab.findings.finding import Claim, Entry, Finding, above, named, near, reaches
from regard.lab.findings.recall import ConvolvedConfig
from regard.lab.findings.small import UNMIXED, brief, unmixed
from regard.lab.recipes import Run
from regard.lab.tasks import Batch, Splits
from regard.lab.tasks.language_models import NextToken
from regard.lab.tasks.synthetic import accuracy_of_answers, most_frequent_answer
from regard.lab.tasks.task import IGNORED, Drawn
from regard.models import LanguageModel

HALF = 8  # keys, and as many values
NOISE, BLANK, SIGN = (
    2 * HALF + 1,
    1,
    2,
)  # first of HALF noise tokens; of selective copying and memorization
Rows = tuple[NDArray[np.integer], NDArray[np.integer]]


def recalls(rng: np.random.Generator, count: int, length: int, noise: float = 0.0) -> Rows:
    """k v k v ...: each row has its own value for each key; the label is the value, from the second time a key is shown.

    noise: share of the pairs that are two noise tokens without a label.
    """
    pairs = length // 2
    value_of = HALF + 1 + rng.integers(HALF, size=(count, HALF))
    key = rng.integers(HALF, size=(count, pairs))
    value = np.take_along_axis(value_of, key, 1)
    drawn = rng.random((count, pairs)) < noise
    seen = np.zeros((count, HALF), dtype=bool)
    labels = np.full((count, length), IGNORED)
    for at in range(pairs):
        again = seen[np.arange(count), key[:, at]] & ~drawn[:, at]
        labels[again, 2 * at] = value[again, at]
        seen[np.arange(count)[~drawn[:, at]], key[~drawn[:, at], at]] = True
    tokens = np.stack([1 + key, value], -1)
    tokens[drawn] = NOISE + rng.integers(HALF, size=(int(drawn.sum()), 2))
    return tokens.reshape(count, -1), labels


def fuzzy_recalls(rng: np.random.Generator, count: int, length: int) -> Rows:
    """Keys and values of one to three tokens; all of a value is due, from the second time its key is shown.

    Six keys a row, of which none begins another.
    """
    tokens, labels = np.zeros((2, count, length), dtype=np.int64)
    labels[:] = IGNORED
    for row in range(count):
        pairs: list[tuple[list[int], list[int]]] = []
        while len(pairs) < 6:
            key, value = (rng.integers(HALF, size=rng.integers(1, 4)).tolist() for _ in range(2))
            if all(key[: len(k)] != k[: len(key)] for k, _ in pairs):
                pairs.append((key, value))
        seen, at = set(), 0
        while at < length:
            number = int(rng.integers(6))
            key, value = pairs[number]
            words = [1 + k for k in key] + [1 + HALF + v for v in value]
            due = [IGNORED] * (len(key) - 1) + words[len(key) :] + [IGNORED]
            end = min(length, at + len(words))
            tokens[row, at:end] = words[: end - at]
            if number in seen:
                labels[row, at:end] = due[: end - at]
            seen.add(number)
            at = end
    return tokens, labels


def selective_copies(rng: np.random.Generator, count: int, length: int) -> Rows:
    """HALF symbols with blanks between them, a sign, and blanks in which the symbols are due."""
    words = SIGN + 1 + rng.integers(HALF, size=(count, HALF))
    places = np.sort(rng.random((count, length - HALF)).argsort(1)[:, :HALF], 1)
    tokens, labels = np.full((count, length), BLANK), np.full((count, length), IGNORED)
    np.put_along_axis(tokens, places, words, 1)
    tokens[:, -HALF] = SIGN
    labels[:, -HALF:] = words
    return tokens, labels


def compressions(rng: np.random.Generator, count: int, length: int) -> Rows:
    """Random tokens: all of them are due, from what the model holds at the last."""
    tokens = 1 + rng.integers(2 * HALF, size=(count, length))
    return tokens, tokens.copy()


def memorizations(rng: np.random.Generator, count: int, length: int) -> Rows:
    """k . k . ...: one value for each of 32 keys in all rows, due at the sign after it."""
    value_of = SIGN + 33 + rng.integers(32, size=32)
    key = rng.integers(32, size=(count, length // 2))
    tokens = np.stack([SIGN + 1 + key, np.full_like(key, SIGN)], -1).reshape(count, -1)
    labels = np.full_like(tokens, IGNORED)
    labels[:, 1::2] = value_of[key]
    return tokens, labels


Kind = Literal[
    "in-context recall",
    "noisy recall",
    "fuzzy recall",
    "selective copying",
    "compression",
    "memorization",
]
_DRAWN: dict[Kind, tuple[Callable[[np.random.Generator, int, int], Rows], int]] = {
    "in-context recall": (recalls, 48),
    "noisy recall": (lambda rng, count, length: recalls(rng, count, length, 0.2), 48),
    "fuzzy recall": (fuzzy_recalls, 64),
    "selective copying": (selective_copies, 48),
    "compression": (compressions, 16),
    "memorization": (memorizations, 32),
}


@dataclass(frozen=True, kw_only=True)
class Manipulation(Drawn, NextToken):
    """One of MAD's tasks; accuracy over the tokens that have labels."""

    name = "manipulation"
    metric = "accuracy"
    better = "higher"
    baseline = "most frequent answer"
    vocab_size = SIGN + 1 + 64

    of: Kind
    train_size: int = 6400
    valid_size: int = 200
    test_size: int = 500

    @property
    def max_len(self) -> int:
        return _DRAWN[self.of][1]

    def load(self) -> Splits:
        draw, length = _DRAWN[self.of]
        return self.windows(*draw(np.random.default_rng(self.seed), self.total, length))

    def score(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        return accuracy_of_answers(self.name, model, batches, vocab_size=self.vocab_size)

    def trivial_baseline(self, splits: Splits | None = None) -> float:
        return most_frequent_answer(splits or self.load())


class Compressor(nn.Module):
    """Logits at every place from that place's vector and the last token's output: two layers read both."""

    def __init__(self, model: LanguageModel, length: int):
        super().__init__()
        width = model.config.dim
        self.encoder = model.encoder
        self.place = nn.Parameter(torch.randn(length, width))
        self.read = nn.Sequential(
            nn.Linear(2 * width, 4 * width),
            nn.ReLU(),
            nn.Linear(4 * width, model.config.vocab_size),
        )

    def forward(self, tokens: Int[Tensor, "B T"], *, valid: None = None) -> Float[Tensor, "B T V"]:
        last = self.encoder(tokens, valid=valid)[:, -1:].expand(-1, tokens.shape[1], -1)
        return self.read(torch.cat([last, self.place.expand_as(last)], -1))


@dataclass(frozen=True, kw_only=True)
class CompressorConfig(ConvolvedConfig):
    name: ClassVar[str] = "compressor"

    def build(self) -> nn.Module:  # type: ignore[override]  # it generates nothing
        return Compressor(super().build(), self.max_len)


WINDOW = "window of 8"
_MIXERS: dict[str, dict[str, Any]] = {
    "softmax": {},
    "linear": {"mixer": "linear"},
    WINDOW: {"mixer": "local", "mixer_options": {"window_size": 7}},
    "random table": {"mixer": "synthesizer_random"},
    UNMIXED: unmixed(),
}


def _entry(of: Kind, label: str) -> Entry:
    def run() -> Run:
        task = Manipulation(of=of)
        config = CompressorConfig if of == "compression" else ConvolvedConfig
        model = config(
            vocab_size=task.vocab_size,
            max_len=task.max_len,
            dim=32,
            num_heads=4,
            num_layers=2,
            hidden_dim=64,
            **_MIXERS[label],
        )
        return Run(task=task, model=model, train=brief(steps=200, batch_size=32, lr=1e-2))

    return Entry(label, run, part=of)


_PAPER = "Poli et al. 2024, arXiv 2403.17844"
_RECALLS: tuple[Kind, ...] = ("in-context recall", "noisy recall", "fuzzy recall")

MAD = Finding(
    name="mad",
    about="Which mechanisms recall, copy, compress and memorize, on six small tasks?",
    entries=tuple(_entry(of, label) for of in _DRAWN for label in _MIXERS),
    claims=(
        Claim(
            "Softmax attention recalls in context, with noise and without: 0.9 and more.",
            _PAPER,
            tuple(reaches(named(part, "softmax"), 0.9) for part in _RECALLS[:2]),
        ),
        Claim(
            "A linear mechanism, whose state is fixed, recalls less than softmax attention.",
            f"{_PAPER}; Arora et al. 2023, arXiv 2312.04927",
            tuple(above(named(part, "softmax"), named(part, "linear")) for part in _RECALLS),
            when=tuple(
                above(named(part, "softmax"), named(part, UNMIXED), by=0.1) for part in _RECALLS
            ),
        ),
        Claim(
            "A window cannot copy what lies outside it: softmax attention copies more.",
            _PAPER,
            (above(named("selective copying", "softmax"), named("selective copying", WINDOW)),),
            when=(
                above(
                    named("selective copying", "softmax"),
                    named("selective copying", UNMIXED),
                    by=0.1,
                ),
            ),
        ),
        Claim(
            "Weights that do not depend on content recall less than softmax attention.",
            "Arora et al. 2023, arXiv 2312.04927",
            tuple(above(named(part, "softmax"), named(part, "random table")) for part in _RECALLS),
            when=tuple(
                above(named(part, "softmax"), named(part, UNMIXED), by=0.1) for part in _RECALLS
            ),
        ),
        Claim(
            "Memorizing a fixed map takes no mixing but the short convolution: within 0.05 of softmax.",
            f"ours, of {_PAPER}, which gives this task to the feed-forward layers",
            (near(named("memorization", UNMIXED), named("memorization", "softmax"), within=0.05),),
        ),
    ),
    method=(
        "Eight keys and eight values (recall: 48 tokens; with a fifth of the pairs noise; with keys and values of one to three tokens, "
        "64 tokens), eight symbols among 32 blanks to be copied after a sign, 16 tokens to be rebuilt from what the model holds at the "
        "last, and a fixed map of 32 keys. Two blocks of width 32 with 4 heads, sinusoids, and a convolution of three tokens before "
        f"each mixer; {UNMIXED}: only that convolution. Accuracy over the tokens that are due; the same rate for all."
    ),
    limits=(
        "The published suite averages the best of six settings over rising difficulties, at width 128, equal state and 12,800 rows; here "
        "each task has its easiest difficulty, one rate and 200 batches of 32.",
        "Fuzzy recall: six keys a row of which none begins another, and rows are cut at the end where the published ones are padded in "
        "front.",
    ),
)
