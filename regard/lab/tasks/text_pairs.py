"""Tasks from one text to another: the base of translation, summaries and dialogue, and how answers are scored."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from accelerate.utils import extract_model_from_parallel
from jaxtyping import Int
from torch import Tensor, nn

from regard.core import OptionError, Share
from regard.lab.data.pairs import Pair, Parts, split_pairs
from regard.lab.data.records import Items, Ragged, Records
from regard.lab.data.splits import SPLITS, apart
from regard.lab.data.vocabulary import BEGIN, END, Vocabulary, learn_vocabulary
from regard.lab.tasks.language_models import bits_of, frequency_bits
from regard.lab.tasks.task import IGNORED, Batch, Columns, Splits, Task, padded
from regard.models.generation import evaluating

Texts = Sequence[str]


def bleu(found: Texts, references: Texts) -> float:
    """BLEU of the whole corpus, 0 to 100, with sacrebleu's default tokens (13a) and smoothing (exp)."""
    import sacrebleu

    return sacrebleu.corpus_bleu(found, [references]).score


def rouge_l(found: Texts, references: Texts) -> float:
    """ROUGE-L's F measure, 0 to 100, the mean over texts; words are lower-cased letters and digits, unstemmed."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rougeL"], use_stemmer=False)
    scores = [
        scorer.score(reference, text)["rougeL"].fmeasure
        for reference, text in zip(references, found, strict=True)
    ]
    return 100 * sum(scores) / len(scores)


METRICS = {"bleu": bleu, "rouge_l": rouge_l}


Metric = Literal["bleu", "rouge_l", "bits_per_byte"]
BITS: Literal["bits_per_byte"] = "bits_per_byte"


class TextPairs(Task):
    """A task from one text to another: translation, summaries, dialogue.

    Loss: cross-entropy of the next target token, smoothed (arXiv 1512.00567). Score: `metric`. Of bleu and rouge_l
    it is that of generated targets; bits_per_byte is the cost of the given ones, against token frequencies.

    Pairs are unique by source before they are split, by group. Source and target share one vocabulary of byte pairs,
    learned from the training part. A pair whose target, or source, is too long is left out of
    every part; where `cuts_source`, long sources are cut instead, and those that are then alike count once. Validation and test are REDUCED to samples of
    `valid_size` and `test_size` pairs, drawn by `seed`, because each is generated token by token; a number larger
    than there are pairs takes all. `notes` has their numbers.

    Args:
        vocab_size: different tokens, those for padding, start and end included
        smoothing: share of the target probability that is spread over the vocabulary
    """

    kind = "translate"
    baseline = "source copied"
    sides = {"source": "valid", "target": "target_valid"}
    has_scores = False
    cuts_source: ClassVar[bool] = False

    metric: Metric = "bleu"  # type: ignore[misc]  # an option here, a constant of the other tasks
    vocab_size: int = 4096
    source_len: int = 64  # tokens
    target_len: int = 64  # tokens, the end included
    valid_size: int = 100
    test_size: int = 500
    smoothing: Share = 0.1  # type: ignore[misc]

    def __post_init__(self):
        if self.metric == BITS:  # of the instance, in the place of its class's
            vars(self).update(better="lower", baseline="token frequencies", has_scores=True)

    def pairs(self) -> list[Pair]:
        """All pairs in a fixed order; what they come from is checked by whoever reads it."""
        raise NotImplementedError

    def parts(self) -> Parts:
        return split_pairs(self.pairs())

    def trivial_answers(self, train: Sequence[Pair], sources: Texts) -> list[list[str]]:
        """Sets of answers that need no model, one answer per source; the best set is the baseline."""
        return [list(sources)]

    @property
    def max_len(self) -> int:
        return max(self.source_len, self.target_len)

    @property
    def vocabulary(self) -> Vocabulary:
        return self.prepare()[0]

    def load(self) -> Splits:
        """Read once in a process for equal options."""
        return self.prepare()[1]

    @lru_cache(maxsize=4)  # noqa: B019  # a task is a value, and holds no data
    def prepare(self) -> tuple[Vocabulary, Splits]:
        """Raises OptionError where no pair is short enough."""
        parts = self.parts()
        texts = [text for pair in parts["train"] for text in (pair.source, pair.target)]
        vocabulary = learn_vocabulary(texts, self.vocab_size)
        rng = np.random.default_rng(self.seed)
        sizes = (None, self.valid_size, self.test_size)
        notes = {}
        records = []
        found = [self.encode(vocabulary, parts[split]) for split in SPLITS]
        if self.cuts_source:
            found = apart(found, key=lambda item: tuple(item["source"]))
        for split, size, encoded in zip(SPLITS, sizes, found, strict=True):
            kept = rng.permutation(len(encoded))[:size]
            if not len(kept):
                raise OptionError(
                    f"{self.name}: the {split} part has no pair that fits in source_len ({self.source_len}) and target_len "
                    f"({self.target_len}) and is in no other part. Raise them, or give other pairs."
                )
            columns = {
                name: Ragged.of([encoded[i][name] for i in kept]) for name in encoded[kept[0]]
            }
            records.append(Records(columns, counted=tuple(self.sides)))
            notes[f"{split} pairs"] = (
                f"{len(kept)} of {len(parts[split])} ({len(encoded)} are short enough)"
            )
        return vocabulary, Splits(*records, notes=notes)

    def encode(self, vocabulary: Vocabulary, pairs: Sequence[Pair]) -> list[dict[str, list[int]]]:
        """{source, target} of each pair that is short enough; targets close with END."""
        sources = vocabulary.encode([pair.source for pair in pairs])
        targets = vocabulary.encode([pair.target for pair in pairs])
        if self.cuts_source:
            sources = [source[: self.source_len] for source in sources]
        return [
            {"source": source, "target": [*target, END]}
            for source, target in zip(sources, targets, strict=True)
            if self.fits(source, target)
        ]

    def fits(self, source: Sequence[int], target: Sequence[int]) -> bool:
        return 0 < len(source) <= self.source_len and 0 < len(target) < self.target_len

    def collate(self, items: Items) -> Batch:
        """{source, valid, target, target_valid, labels}: the target begins with BEGIN, its labels close with END."""
        source, valid = padded([item["source"] for item in items])
        labels, target_valid = padded([item["target"] for item in items], IGNORED)
        return {
            "source": source,
            "valid": valid,
            "target": F.pad(labels[:, :-1], (1, 0), value=BEGIN).masked_fill(labels == IGNORED, 0),
            "target_valid": target_valid,
            "labels": labels,
        }

    def generate(self, model: nn.Module, batch: Batch) -> list[str]:
        """The model's own targets, by greedy search."""
        found = extract_model_from_parallel(model).generate(
            batch["source"], BEGIN, valid=batch["valid"], max_new_tokens=self.target_len, eos=END
        )
        return [self.vocabulary.decode(row) for row in found.tolist()]

    def columns(self, model: nn.Module, batch: Batch) -> Columns:
        """Bits of each given target, and its bytes, whatever the vocabulary; the end of a target counts as one.

        No text is generated, so the score separates models long before any of them writes a correct sentence.
        """
        labels = batch["labels"]
        return bits_of(self.answer(model, batch), labels), self.sizes(labels.tolist())

    def sizes(self, targets: Iterable[Sequence[int]]) -> Int[Tensor, "n"]:
        """Bytes of each target, and one for its end."""
        return torch.tensor([len(self.vocabulary.decode(one).encode()) + 1 for one in targets])

    def score(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        if self.metric not in METRICS:
            return super().score(model, batches)
        found = []
        references = list[str]()
        with evaluating(model), torch.no_grad():
            for batch in batches:
                found += self.generate(model, batch)
                references += map(self.vocabulary.decode, batch["labels"].tolist())
        if not found:
            raise self.nothing
        return METRICS[self.metric](found, references)

    def trivial_baseline(self, splits: Splits) -> float:
        """The best of `trivial_answers`; bits under the frequencies of the training targets' tokens."""
        if self.metric != BITS:
            train, test = (list(self.texts(part)) for part in (splits.train, splits.test))
            references = [pair.target for pair in test]
            answers = self.trivial_answers(train, [pair.source for pair in test])
            return max(METRICS[self.metric](found, references) for found in answers)
        known, asked = ([item["target"] for item in part] for part in (splits.train, splits.test))
        bits = frequency_bits(torch.cat(known), torch.cat(asked), self.vocab_size)
        return self.measure(bits, self.sizes(one.tolist() for one in asked))

    def texts(self, data: Records) -> Iterator[Pair]:
        """The pairs of a split as the model sees them, cut and decoded; their groups are lost."""
        for item in data:
            source, target = (
                self.vocabulary.decode(item[name].tolist()) for name in ("source", "target")
            )
            yield Pair(source, target, "")
