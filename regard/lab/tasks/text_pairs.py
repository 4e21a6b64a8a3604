"""From one text to another: the base of translation, summaries and dialogue, and how answers are scored."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence

from regard.core import OptionError
from regard.core.options import Share
from regard.lab.data.pairs import Pair, split_pairs, unique
from regard.lab.data.records import Data, Ragged, Records
from regard.lab.data.sources import cache_folder
from regard.lab.data.splits import Split, apart
from regard.lab.data.vocabulary import BEGIN, END, Vocabulary, learn_vocabulary
from regard.lab.tasks.task import IGNORED, Batch, Splits, Task, count_valid, evaluation, padded


def bleu(found: Sequence[str], references: Sequence[str]) -> float:
    """BLEU of the whole corpus, 0 to 100, with sacrebleu's default tokens (13a) and smoothing (exp)."""
    import sacrebleu

    return sacrebleu.corpus_bleu(list(found), [list(references)]).score


def chrf(found: Sequence[str], references: Sequence[str]) -> float:
    """chrF2 of the whole corpus, 0 to 100: character n-grams up to six."""
    import sacrebleu

    return sacrebleu.corpus_chrf(list(found), [list(references)]).score


def rouge_l(found: Sequence[str], references: Sequence[str]) -> float:
    """ROUGE-L's F measure, 0 to 100, the mean over texts; words are lower-cased letters and digits, unstemmed."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rougeL"], use_stemmer=False)
    scores = [
        scorer.score(reference, text)["rougeL"].fmeasure
        for reference, text in zip(references, found, strict=True)
    ]
    return 100 * sum(scores) / len(scores)


def token_frequencies(
    vocabulary: Vocabulary, size: int, train: Sequence[Tensor], test: Sequence[Tensor]
) -> float:
    """Bits for each byte of the test targets under the frequencies of the training targets' tokens, one added to each."""
    counts = torch.bincount(torch.cat(list(train)), minlength=size).double() + 1
    bits = -(counts / counts.sum()).log2()[torch.cat(list(test))].sum()
    return float(bits) / byte_count(vocabulary, (target.tolist() for target in test))


def byte_count(vocabulary: Vocabulary, targets: Iterable[Sequence[int]]) -> int:
    """Bytes of all targets, plus one for the end of each."""
    return sum(len(vocabulary.decode(target).encode()) + 1 for target in targets)


Metric = Callable[[Sequence[str], Sequence[str]], float]


METRICS: Mapping[str, Metric] = {"bleu": bleu, "chrf": chrf, "rouge_l": rouge_l}


BITS = "bits_per_byte"


class Prepared(NamedTuple):
    vocabulary: Vocabulary
    splits: Splits


@dataclass(frozen=True, kw_only=True)
class TextPairs(Task):
    """From one text to another: translation, summaries, dialogue.

    Loss: cross-entropy of the next target token, smoothed (arXiv 1512.00567). Score: `metric`. Of bleu, chrf and rouge_l
    it is that of generated targets; bits_per_byte is the cost of the given ones, against token frequencies.

    Pairs are unique by source before they are split, by group. Source and target share one vocabulary of byte pairs,
    learned from the training part and kept in the cache. A pair whose target, or source, is too long is left out of
    every part; where `cuts_source`, long sources are cut instead, and those that are then alike count once. Validation and test are REDUCED to samples of
    `valid_size` and `test_size` pairs, drawn by `seed`, because each is generated token by token; a number larger
    than there are pairs takes all. `notes` has their numbers.
    """

    kind = "translate"
    better: ClassVar[Literal["higher", "lower"]] = "higher"
    baseline = "source copied"
    metrics: ClassVar[tuple[str, ...]] = (*METRICS, BITS)  # values that `metric` may have
    cuts_source: ClassVar[bool] = False

    metric: str = "bleu"  # type: ignore[misc]  # an option here, a constant of the other tasks
    vocab_size: int = 4096
    source_len: int = 64  # tokens
    target_len: int = 64  # tokens, the end included
    valid_size: int = 100
    test_size: int = 500
    smoothing: Share = 0.1
    beams: int = 1  # one is greedy search
    length_penalty: float = 0.6

    def __post_init__(self) -> None:
        if self.metric not in self.metrics:
            raise OptionError(
                f"{self.name}: metric must be one of {', '.join(self.metrics)}, got {self.metric!r}"
            )
        if self.metric == BITS:  # of the instance, in the place of its class's
            object.__setattr__(self, "better", "lower")
            object.__setattr__(self, "baseline", "token frequencies")

    @abstractmethod
    def pairs(self) -> list[Pair]:
        """All pairs in a fixed order; what they come from is checked by whoever reads it."""

    def parts(self) -> dict[Split, list[Pair]]:
        return split_pairs(unique(self.pairs()))

    def origin(self) -> dict[str, str]:
        """Other things than the options that the data depend on, for the notes."""
        return {}

    def trivial_answers(self, train: Sequence[Pair], sources: Sequence[str]) -> list[list[str]]:
        """Sets of answers that need no model, one answer per source; the best set is the baseline."""
        return [list(sources)]

    @property
    def facts(self) -> dict[str, Any]:
        return {"vocab_size": self.vocab_size}

    @property
    def max_len(self) -> int:
        return max(self.source_len, self.target_len)

    @property
    def vocabulary(self) -> Vocabulary:
        return _prepared(self).vocabulary

    def load(self) -> Splits:
        """Read once in a process for equal options."""
        return _prepared(self).splits

    def prepare(self) -> Prepared:
        """Raises OptionError where no pair is short enough."""
        parts = self.parts()
        vocabulary = learn_vocabulary(
            [text for pair in parts["train"] for text in (pair.source, pair.target)],
            self.vocab_size,
            cache_folder() / "vocabularies",
        )
        rng = np.random.default_rng(self.seed)
        sizes: dict[Split, int | None] = {
            "train": None,
            "valid": self.valid_size,
            "test": self.test_size,
        }
        notes = self.origin()
        records = {}
        found = [self.encode(vocabulary, parts[split]) for split in sizes]
        if self.cuts_source:
            found = apart(found, key=lambda item: tuple(item["source"]))
        for (split, size), encoded in zip(sizes.items(), found, strict=True):
            kept = rng.permutation(len(encoded))[: size or len(encoded)]
            if not len(kept):
                raise OptionError(
                    f"{self.name}: no pair of the {split} part fits in source_len ({self.source_len}) and "
                    f"target_len ({self.target_len}). Raise them."
                )
            records[split] = self.records([encoded[i] for i in kept])
            notes[f"{split} pairs"] = (
                f"{len(kept)} of {len(parts[split])} ({len(encoded)} are short enough)"
            )
        return Prepared(
            vocabulary, Splits(records["train"], records["valid"], records["test"], notes=notes)
        )

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

    def records(self, encoded: Sequence[dict[str, list[int]]]) -> Records:
        columns = {name: Ragged.of([item[name] for item in encoded]) for name in encoded[0]}
        return Records(columns, counted=("source", "target"))

    def collate(self, items: Sequence[Mapping[str, Tensor]]) -> Batch:
        """{source, valid, target, target_valid, labels}: the target begins with BEGIN, its labels close with END."""
        source, valid = padded([item["source"] for item in items])
        begin = items[0]["target"].new_tensor([BEGIN])
        target, target_valid = padded([torch.cat([begin, item["target"][:-1]]) for item in items])
        return {
            "source": source,
            "valid": valid,
            "target": target,
            "target_valid": target_valid,
            "labels": pad_sequence(
                [item["target"] for item in items], batch_first=True, padding_value=IGNORED
            ),
        }

    def count(self, batch: Batch) -> int:
        """Tokens of the source and of the target."""
        return count_valid(batch["source"], batch["valid"]) + count_valid(
            batch["target"], batch["target_valid"]
        )

    def answer(self, model: nn.Module, batch: Batch) -> Float[Tensor, "B T vocab"]:
        return model(
            batch["source"],
            batch["target"],
            valid=batch["valid"],
            target_valid=batch["target_valid"],
        ).float()

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        return F.cross_entropy(
            self.answer(model, batch).flatten(0, 1),
            batch["labels"].flatten(),
            ignore_index=IGNORED,
            label_smoothing=self.smoothing,
        )

    def generate(self, model: nn.Module, batch: Batch) -> list[str]:
        """The model's own targets: greedy, or the best of its beams."""
        whole: Any = model.module if isinstance(model, DistributedDataParallel) else model
        facts = {"valid": batch["valid"], "max_new_tokens": self.target_len, "eos": END}
        if self.beams == 1:
            found = whole.generate(batch["source"], BEGIN, **facts)
        else:
            found = whole.beam_search(
                batch["source"],
                BEGIN,
                **facts,
                beams=self.beams,
                length_penalty=self.length_penalty,
            ).tokens[:, 0]
        return [self.vocabulary.decode(row) for row in found.tolist()]

    def score(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        if self.metric == BITS:
            return self.bits(model, batches)
        found: list[str] = []
        references: list[str] = []
        with evaluation(model):
            for batch in batches:
                found += self.generate(model, batch)
                references += [self.vocabulary.decode(row) for row in batch["labels"].tolist()]
        if not found:
            raise OptionError(f"{self.name}: score needs at least one batch, got none")
        return METRICS[self.metric](found, references)

    def bits(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        """Bits for each byte of the given targets, whatever the vocabulary; the end of a target counts as a byte.

        No text is generated, so the score separates models long before any of them writes a correct sentence.

        Raises OptionError where there is no batch.
        """
        nats, size = 0.0, 0
        with evaluation(model):
            for batch in batches:
                labels = batch["labels"]
                logits = self.answer(model, batch).flatten(0, 1)
                nats += float(
                    F.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED, reduction="sum")
                )
                kept = ([token for token in row if token != IGNORED] for row in labels.tolist())
                size += byte_count(self.vocabulary, kept)
        if not size:
            raise OptionError(f"{self.name}: score needs at least one batch, got none")
        return nats / math.log(2) / size

    def trivial_baseline(self, splits: Splits | None = None) -> float:
        """The best of `trivial_answers`; bits under the frequencies of the training targets' tokens."""
        splits = splits or self.load()
        if self.metric != BITS:
            train, test = (list(self.texts(part)) for part in (splits.train, splits.test))
            references = [pair.target for pair in test]
            answers = self.trivial_answers(train, [pair.source for pair in test])
            return max(METRICS[self.metric](found, references) for found in answers)
        parts = (splits.train, splits.test)
        train_, test_ = ([part[i]["target"] for i in range(len(part))] for part in parts)
        return token_frequencies(self.vocabulary, self.vocab_size, train_, test_)

    def texts(self, data: Data) -> Iterator[Pair]:
        """The pairs of a split as the model sees them, cut and decoded; their groups are lost."""
        for item in (data[i] for i in range(len(data))):
            source, target = (
                self.vocabulary.decode(item[name].tolist()) for name in ("source", "target")
            )
            yield Pair(source, target, "")


def first_words(train: Sequence[Pair], sources: Sequence[str]) -> list[str]:
    """The first words of each source, as many as the median training target has."""
    length = round(median(len(pair.target.split()) for pair in train))
    return [" ".join(source.split()[:length]) for source in sources]


def most_frequent(train: Sequence[Pair], sources: Sequence[str]) -> list[str]:
    """The training target that occurs most often, or first, whatever the source."""
    counts: dict[str, int] = {}
    for pair in train:
        counts[pair.target] = counts.get(pair.target, 0) + 1
    best = max(counts, key=lambda target: counts[target])
    return [best] * len(sources)


@lru_cache(maxsize=4)
def _prepared(task: TextPairs) -> Prepared:
    return task.prepare()
