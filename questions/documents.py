"""Does attention weigh the sentences of a document better than their mean and their maximum do?

regard arena questions.documents:QUESTION --rows docs/findings/rows/documents.jsonl

About 23 core-minutes: 114 runs, of HAN 15 s, mean and maximum 12 s, one level 30 s, convolutions and lines 3 to 6 s, and a sixth more where rates are widened.
"""

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


class Emphasis(Drawn, Classify):
    """The class that most of the most emphatic sentences name: three of five, of twenty.

    Each sentence names a class, right behind a mark of five degrees. Five of one degree name one class thrice and two others once; fifteen of the degree
    below name any. A second mark stands where it means nothing, and each sentence ends in a full stop.
    """

    name = "emphasis"
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
        n, S, C, W = self.total, self.sentences, self.num_classes, self.words - 1
        tokens = rng.integers(7 + C, self.vocab_size, (n, S, self.words))
        classes, highest = rng.random((n, C)).argsort(1), rng.integers(1, 5, (n, 1))
        named, degree = rng.integers(0, C, (n, S)), np.repeat(highest - 1, S, 1)
        named[:, :5], degree[:, :5] = classes[:, [0, 0, 0, 1, 2]], highest
        order = rng.random((n, S)).argsort(1)
        named, degree = (np.take_along_axis(one, order, 1)[..., None] for one in (named, degree))
        place = rng.integers(1, W, (n, S, 1))
        other = (place + 1 + rng.integers(0, W - 2, (n, S, 1))) % W  # neither there nor just before
        np.put_along_axis(tokens, place, 7 + named, 2)
        np.put_along_axis(tokens, place - 1, 1 + degree, 2)
        np.put_along_axis(tokens, other, 1 + rng.integers(0, 5, (n, S, 1)), 2)
        tokens[..., -1] = 6  # a full stop
        records = Records({"tokens": tokens, "label": classes[:, 0]})
        return Splits(*map(records.take, self.parts))

    def collate(self, items: Any) -> dict[str, Any]:
        tokens = torch.stack([item["tokens"] for item in items])
        labels = torch.stack([item["label"] for item in items])
        return {"tokens": tokens, "valid": torch.ones_like(tokens).bool(), "labels": labels}


def _han(column: Column, **more: Any) -> HANConfig:
    facts: Any = dict(vocab_size=Emphasis.vocab_size, num_classes=Emphasis.num_classes)
    sizes = dict(dim=32, hidden_dim=column.shell.dim // 2, attention_dim=32, max_len=256)
    return HANConfig(**{**facts, **sizes, **more})


PLAIN: dict[str, Any] = {"word_encoder": "none", "sentence_encoder": "none"}
YANG = "Yang et al. 2016, NAACL"
SHELLS = (Shell(dim=32), Shell(dim=48))

# fmt: off
QUESTION = Question(
    name="documents",
    about="Are the five most emphatic of twenty sentences weighed by attention, by the mean, by the maximum, or without sentences?",
    kind="comparison",
    entries=(
        Entry(title="HAN", make=_han),
        Entry(title="mean of words and sentences", make=partial(_han, pool="mean")),
        Entry(title="maximum of words and sentences", make=partial(_han, pool="max")),
        Entry(title="one level", make=partial(_han, flat=True)),
        Entry(title="convolutions", make=partial(_han, word_encoder="convolution", sentence_encoder="convolution")),
        Entry(title="flat convolution, mean", make=partial(_han, word_encoder="convolution", flat=True, pool="mean")),
        Entry(title="flat convolution, maximum", make=partial(_han, word_encoder="convolution", flat=True, pool="max")),
        Entry(title="no mixing", make=partial(_han, pool="max", flat=True, **PLAIN)),
        Entry(title="the bag", make=partial(_han, pool="mean", flat=True, **PLAIN)),
    ),
    vary=(
        Column(
            name="emphasis", task=Emphasis(valid_size=500, test_size=1000), shell=SHELLS[0],
            train=TrainConfig(steps=400, batch_size=32, weight_decay=0.0, eval_every=100, checkpoint_every=10_000, keep=1),
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
            expected=tuple(above("mean of words and sentences", f"flat convolution, {pool}") for pool in ("mean", "maximum")),
        ),
    ),
    limits=(
        "Made so that each pool has its reason: what is highest in this document alone counts, which a mean of fixed weights blurs; and it counts by votes, which a maximum does not see.",
        "No mixing is the maximum over all single words, the bag their mean: a vote of all twenty sentences, which is right in 0.6.",
        "Sizes differ by the encoders: a convolution of five words has more weights than a GRU. Flat convolutions have no attention, as in the paper's baselines.",
        "400 steps of 32 documents, none seen twice. Real documents, where the words say how much they count by their meaning, are not asked; there attention gained a hundredth.",
    ),
)
