"""Greek to English, with words aligned by hand: do attention weights find the translation of a word?

    alignment error rate = 1 - (|A and S| + |A and P|) / (|A| + |S|)       (Och & Ney 2003, Computational Linguistics 29)

S are the links that people are sure of, P those that they hold possible. All links here are sure, S = P, and the rate is
one minus the F measure of A. A is read off the cross-attention of a pass over the true target: the weights of `layer`
(counted from the first; -1 is the last), the mean over heads; the sum over a source word's tokens, the mean over a target
word's; then each target word is linked to the source word with the largest weight. One link each is right in 95 of 100
words: with the people's own links, chosen so, the rate is 0.05.
"""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core import OptionError, UnsupportedError, Whole
from regard.explore.agreement import count_links, error_rate
from regard.lab.data.bibles import read_aligned_verses
from regard.lab.data.pairs import Pair
from regard.lab.data.records import Items
from regard.lab.data.sources import archive
from regard.lab.data.vocabulary import END, Vocabulary
from regard.lab.tasks.task import Batch, Columns, Splits, padded
from regard.lab.tasks.text_pairs import TextPairs

NO_WORD = -1


class GreekEnglish(TextPairs):
    """The New Testament by verse: SBL's Greek, the Berean Standard Bible, alignments of Clear Bible. Split by chapter.

    reads: the row of a target token is that of the step which predicts it, or of the step which has just read it
    (Chen et al. 2020, arXiv 2004.14675: the latter knows the word that it aligns).
    """

    name = "greek_english"
    better = "lower"
    baseline = "diagonal"
    sources = ("bible_alignments",)

    metric: Literal["alignment_error_rate"] = "alignment_error_rate"  # type: ignore[misc, assignment]
    source_len: int = 64
    target_len: int = 64
    layer: Whole = -1  # of the decoder, whose weights are the alignment; negative: from the last
    reads: Literal["predicted", "read"] = "read"

    def pairs(self) -> list[Pair]:
        return read_aligned_verses(archive("bible_alignments"))

    def encode(self, vocabulary: Vocabulary, pairs: Sequence[Pair]) -> list[dict[str, list[int]]]:
        """Adds the word that each token is part of (the end is of none), and the links of words, end to end."""
        encoded = []
        for pair in pairs:
            source, source_word = vocabulary.encode_words(pair.source.split())
            target, target_word = vocabulary.encode_words(pair.target.split())
            if self.fits(source, target):
                encoded.append(
                    {
                        "source": source,
                        "target": [*target, END],
                        "source_word": source_word,
                        "target_word": [*target_word, NO_WORD],
                        "links": [place for link in pair.links for place in link],
                    }
                )
        return encoded

    def collate(self, items: Items) -> Batch:
        """Adds source_word [B S], target_word [B T] (-1: none), and links [B V W], which words V and W belong together."""
        batch = super().collate(items)
        for name in ("source_word", "target_word"):
            batch[name], _ = padded([item[name] for item in items], NO_WORD)
        sizes = (int(batch[name].max()) + 1 for name in ("source_word", "target_word"))
        links = torch.zeros(len(items), *sizes, dtype=torch.bool)
        for row, item in enumerate(items):
            v, w = item["links"].view(-1, 2).unbind(1)
            links[row, v, w] = True
        return {**batch, "links": links}

    def columns(self, model: nn.Module, batch: Batch) -> Columns:
        """Links of each verse: right ones, found ones, given ones.

        Raises UnsupportedError where the model has no cross-attention, or its mixer no map.
        """
        return tuple(count_links(self.align(model, batch), batch["links"]))

    def measure(self, *columns: Tensor) -> float:
        """Raises OptionError without a gold link."""
        counts = torch.stack(columns).sum(1)
        if not counts[2]:
            raise self.nothing
        return error_rate(counts).item()

    def align(self, model: nn.Module, batch: Batch) -> Bool[Tensor, "B V W"]:
        """The links that the attention weights imply: each target word w with the source word v of the largest weight."""
        words = self.word_weights(model, batch)
        best = words.argmax(1, keepdim=True)
        there = _is_of(batch["target_word"], words.shape[2]).any(1, keepdim=True)
        return torch.zeros_like(batch["links"]).scatter_(1, best, there)

    def word_weights(self, model: nn.Module, batch: Batch) -> Float[Tensor, "B V W"]:
        """Weights of `layer`: sums over a source word's tokens, means over a target word's; -inf for a source word that a row has not.

        Raises UnsupportedError for a model without cross-attention, OptionError for a layer that it has not.
        """
        from accelerate.utils import extract_model_from_parallel

        whole = extract_model_from_parallel(model)
        if not hasattr(whole, "cross_attention"):
            raise UnsupportedError(
                f"{self.name} needs a model with cross-attention, and {type(whole).__name__} has no method "
                "cross_attention. Use regard.models.Transformer."
            )
        masks = {name: batch[name] for name in ("valid", "target_valid")}
        maps = whole.cross_attention(batch["source"], batch["target"], **masks)
        if not -len(maps) <= self.layer < len(maps):
            raise OptionError(
                f"{self.name}: layer ({self.layer}) must be one of the decoder's {len(maps)}, counted from 0"
            )
        scores = maps[self.layer].float().mean(1)
        target_word = batch["target_word"]
        if self.reads == "read":  # the input at t is the label of t - 1
            target_word = F.pad(target_word[:, :-1], (1, 0), value=NO_WORD)
        V, W = batch["links"].shape[1:]
        from_source = _is_of(batch["source_word"], V)
        to_target = _is_of(target_word, W)
        share = to_target / to_target.sum(1, keepdim=True).clamp(min=1)
        there = from_source.any(1)[..., None]
        return ((scores @ from_source).mT @ share).masked_fill(~there, -torch.inf)

    def trivial_baseline(self, splits: Splits) -> float:
        """The rate of the diagonal: words at the same relative position of their verses are linked."""
        batch = self.collate(list(splits.test))
        found = torch.zeros_like(batch["links"])
        for row in range(len(splits.test)):
            V, W = (int(batch[name][row].max()) + 1 for name in ("source_word", "target_word"))
            w = torch.arange(W)
            found[row, ((w + 0.5) * V / W).long(), w] = True
        return self.measure(*count_links(found, batch["links"]))


def _is_of(word: Int[Tensor, "B T"], size: int) -> Float[Tensor, "B T size"]:
    """1 where a token is part of a word."""
    return (word[..., None] == torch.arange(size, device=word.device)).float()
