"""Does attention over sentences find the one in twenty that decides?

regard arena questions.documents:QUESTION --rows docs/findings/rows/documents.jsonl

About 6 core-minutes, estimated: 96 runs of 3.5 s, and a sixth more where rates are widened.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch

from regard.lab import Claim, Column, Entry, Question, Shell, above
from regard.lab.data.records import Records
from regard.lab.tasks import Splits
from regard.lab.tasks.task import Classify, Drawn
from regard.lab.train import TrainConfig
from regard.models import HANConfig


@dataclass(frozen=True, kw_only=True)
class OneDecides(Drawn, Classify):
    """The class that one of twenty sentences names behind a mark; the others name classes without it, evenly.

    8 words a sentence: word 1 is the mark, 2 to 5 name classes, others mean nothing. Every sentence holds one class word.
    """

    name = "one_decides"
    kind: ClassVar[str] = "documents"
    vocab_size = 64
    num_classes = 4

    sentences: int = 20
    words: int = 8
    train_size: int = 12800

    @property
    def max_len(self) -> int:
        return self.sentences

    def load(self) -> Splits:
        rng = np.random.default_rng(self.seed)
        n, S, C = self.total, self.sentences, self.num_classes
        tokens = rng.integers(2 + C, self.vocab_size, (n, S, self.words))
        named, rows = rng.integers(0, C, (n, S)), np.arange(n)
        place, decides = rng.integers(1, self.words, (n, S)), rng.integers(0, S, n)
        np.put_along_axis(tokens, place[..., None], 2 + named[..., None], 2)
        tokens[rows, decides, place[rows, decides] - 1] = 1
        records = Records({"tokens": tokens, "label": named[rows, decides]})
        return Splits(*map(records.take, self.parts))

    def collate(self, items: Any) -> dict[str, Any]:
        tokens, labels = (
            torch.stack([item[name] for item in items]) for name in ("tokens", "label")
        )
        return {
            "tokens": tokens,
            "valid": torch.ones_like(tokens, dtype=torch.bool),
            "labels": labels,
        }


def _han(column: Column, **more: Any) -> HANConfig:
    sizes: Mapping[str, Any] = dict(
        dim=32, hidden_dim=column.shell.dim // 2, attention_dim=32, max_len=256
    )
    return HANConfig(
        vocab_size=OneDecides.vocab_size, num_classes=OneDecides.num_classes, **{**sizes, **more}
    )


PLAIN: dict[str, Any] = {"word_encoder": "none", "sentence_encoder": "none"}
YANG = "Yang et al. 2016, NAACL"
SHELLS = (Shell(dim=32), Shell(dim=48))

# fmt: off
QUESTION = Question(
    name="documents",
    about="Is the one sentence in twenty that decides found by attention, by the mean, by the maximum, or without sentences?",
    kind="comparison",
    entries=(
        Entry(title="HAN", make=_han),
        Entry(title="mean of words and sentences", make=partial(_han, pool="mean")),
        Entry(title="maximum of words and sentences", make=partial(_han, pool="max")),
        Entry(title="one level", make=partial(_han, flat=True)),
        Entry(title="convolutions", make=partial(_han, word_encoder="convolution", sentence_encoder="convolution")),
        Entry(title="flat convolution", make=partial(_han, word_encoder="convolution", flat=True)),
        Entry(title="no mixing", make=partial(_han, pool="max", flat=True, **PLAIN)),
        Entry(title="the bag", make=partial(_han, pool="mean", flat=True, **PLAIN)),
    ),
    vary=(
        Column(
            name="one of twenty", task=OneDecides(valid_size=500, test_size=1000), shell=SHELLS[0],
            train=TrainConfig(steps=160, batch_size=32, weight_decay=0.0, eval_every=100, checkpoint_every=10_000, keep=1),
        ),
    ),
    shells=SHELLS,
    rates=(2e-3, 5e-3, 12.5e-3),
    baseline="HAN",
    factors=("size",),
    claims=(
        Claim(
            text="Attention is better than the mean and the maximum over words and sentences.", source=f"{YANG}: 71.0 % against 69.9 % and 70.1 % on Yelp 2015",
            smallest=0.02, expected=tuple(above("HAN", f"{one} of words and sentences") for one in ("mean", "maximum")),
        ),
        Claim(text="Two levels are better than one.", source=YANG, smallest=0.02, expected=(above("HAN", "one level"),)),
        Claim(
            text="Even without attention, two levels are better than a flat convolution.", source=YANG, smallest=0.02,
            expected=(above("mean of words and sentences", "flat convolution"),),
        ),
    ),
    limits=(
        "Made so that one sentence decides, and so that a mark beside a word says which: an encoder of words is needed, and one of sentences is not.",
        "No mixing is the maximum over all single words, the bag their mean. In 400 steps all but the convolutions solve it: what is asked is who does in 160. Sizes differ by the encoders: a convolution of five words has more weights than a GRU.",
        "Real documents, in which many sentences say a little, are not asked; there attention gained a hundredth.",
    ),
)
