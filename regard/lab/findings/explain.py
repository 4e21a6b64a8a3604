"""explain: do attention weights say which words belong together, and which sentences an answer is owed to?"""

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.explore import gradient_times_attention, spearman
from regard.explore.agreement import AlignmentCount, count_links
from regard.lab.findings.finding import (
    Claim,
    Entry,
    Finding,
    Fitted,
    below,
    named,
    reaches,
    stays_below,
)
from regard.lab.findings.small import brief
from regard.lab.recipes import Run
from regard.lab.tasks import DebianSections, GreekEnglish
from regard.lab.tasks.task import Batch, evaluation
from regard.models import HANConfig, TransformerConfig

LINKS, REMOVED = "Greek and English words, linked by people", "sentences of a document, taken out"
AGREES, RANKS = "the largest weight is the largest effect", "rank correlation"
ERROR = "alignment_error_rate"
WEIGHTS, GRADIENT, LEFT_OUT = "weights", "gradient x attention", "a word left out"
VERSES = 200  # of the test split, in which each word is left out in turn


_VERSES = GreekEnglish(reads="predicted", source_len=32, target_len=32)


def _links(label: str, mixer: str = "", **options: Any) -> Entry:
    def run() -> Run:
        model = TransformerConfig(
            vocab_size=_VERSES.vocab_size,
            max_len=_VERSES.max_len,
            dim=64,
            num_heads=4,
            num_layers=1,
            mixer="local",
            mixer_options={"window_size": 1},
            cross_mixer=mixer or label,
            cross_mixer_options=options,
        )
        return Run(task=_VERSES, model=model, train=brief(steps=600, batch_size=32, lr=3e-3))

    return Entry(label, run, part=LINKS)


def _removed(label: str, **options: Any) -> Entry:
    def run() -> Run:
        task = DebianSections(num_sources=4000, vocab_size=5000, max_sentences=6, max_words=24)
        model = HANConfig(
            **task.facts, dim=32, hidden_dim=16, attention_dim=32, num_heads=2, **options
        )
        return Run(task=task, model=model, train=brief(steps=150, batch_size=32, lr=5e-3))

    return Entry(label, run, part=REMOVED)


def measures(fitted: Fitted) -> dict[str, float]:
    task, test = fitted.run.task, fitted.splits.test
    if isinstance(task, GreekEnglish):
        return of_words(task, fitted.model, test)
    return of_sentences(task, fitted.model, test) if isinstance(task, DebianSections) else {}


def of_words(task: GreekEnglish, model: nn.Module, test: Any) -> dict[str, float]:
    """Error rates against people's links, and mean rank correlations of the source words' scores, of each two attributions."""
    counts = {name: AlignmentCount() for name in (WEIGHTS, GRADIENT, LEFT_OUT)}
    correlations: dict[tuple[str, str], list[float]] = {}
    for items in torch.arange(min(VERSES, len(test))).split(20):
        batch = task.collate([test[int(i)] for i in items])
        found = attributions(task, model, batch)
        for name, scores in found.items():
            counts[name] = counts[name] + count_links(task.links(scores, batch), batch["links"])
        for row, word in batch["links"].any(1).nonzero().tolist():
            there = found[WEIGHTS][row, :, word] > -math.inf
            for pair in combinations(found, 2):
                rho = spearman(*(found[name][row, there, word] for name in pair))
                if not math.isnan(rho):
                    correlations.setdefault(pair, []).append(rho)
    errors = {name: count.error_rate for name, count in counts.items()}
    return (
        {error(name): value for name, value in errors.items()}
        | {saved(name): errors[WEIGHTS] - errors[name] for name in (GRADIENT, LEFT_OUT)}
        | {correlation(*pair): sum(rhos) / len(rhos) for pair, rhos in correlations.items()}
    )


def error(name: str) -> str:
    return f"error by {name}"


def saved(name: str) -> str:
    return f"error saved by {name}"


def correlation(one: str, other: str) -> str:
    return f"rank correlation, {one} and {other}"


def attributions(
    task: GreekEnglish, model: nn.Module, batch: Batch
) -> Mapping[str, Float[Tensor, "B V W"]]:
    """Scores of source words for each target word's log-probability, with the true target before it, by three methods.

    The weights of the one cross-attention; these times their gradient, summed over heads (its sign kept); what is lost
    without each token of the source. The decoder must mix target tokens before the cross-attention alone, in one layer.
    """
    labels = batch["labels"].clamp(min=0)[..., None]

    def log_probability(output: Tensor, valid: Any = None) -> Float[Tensor, "B T"]:
        return output.log_softmax(-1).gather(2, labels)[..., 0]

    products = gradient_times_attention(
        model,
        batch["source"],
        batch["target"],
        valid=batch["valid"],
        target_valid=batch["target_valid"],
        answer=lambda output, _: log_probability(output).sum(1, keepdim=True),
    )
    with evaluation(model):
        whole = log_probability(task.answer(model, batch))
        lost = []
        for s in range(batch["source"].shape[1]):
            rest = batch["valid"].clone()
            rest[:, s] = False
            lost.append(whole - log_probability(task.answer(model, {**batch, "valid": rest})))
        return {
            WEIGHTS: task.word_weights(model, batch),
            GRADIENT: task.by_words(products[-1].sum(1), batch),
            LEFT_OUT: task.by_words(torch.stack(lost, 2), batch),
        }


def of_sentences(task: DebianSections, model: Any, test: Any) -> dict[str, float]:
    """Weights of sentences beside what the answer's logit loses without each of them."""
    batch = task.collate([test[i] for i in range(min(400, len(test)))])
    tokens, valid = batch["tokens"], batch["valid"]
    with evaluation(model):
        read = model.read(tokens, valid=valid)
        answer = read.logits.argmax(1, keepdim=True)
        whole = read.logits.gather(1, answer)
        lost = []
        for s in range(tokens.shape[1]):
            rest = valid.clone()
            rest[:, s] = False
            lost.append(whole - model(tokens, valid=rest).gather(1, answer))
    return agreement(read.sentences, torch.cat(lost, 1), valid.any(-1))


def agreement(
    weights: Float[Tensor, "B S"], effects: Float[Tensor, "B S"], exists: Bool[Tensor, "B S"]
) -> dict[str, float]:
    """Over documents of at least three sentences: how often both have their largest at one place, and Spearman's rho."""
    same, chance, rhos = [], [], []
    for weight, effect, there in zip(weights, effects, exists, strict=True):
        n = int(there.sum())
        if n < 3:
            continue
        w, e = weight[there], effect[there]
        same.append(float(w.argmax() == e.argmax()))
        chance.append(1 / n)
        if not math.isnan(rho := spearman(w, e)):
            rhos.append(rho)
    if not same:
        return {}
    found = {AGREES: sum(same) / len(same), "by chance": sum(chance) / len(chance)}
    return found | ({RANKS: sum(rhos) / len(rhos)} if rhos else {})


_KERNELS = ("linear", "efficient", "performer")
ATTENTION, DIAGONAL, ADDITIVE = "attention (HAN)", "the diagonal", "additive scores"

EXPLAIN = Finding(
    name="explain",
    about="Do attention weights say which words belong together, and which sentences an answer is owed to?",
    entries=(
        _links("softmax"),
        _links(ADDITIVE, "scored", score="additive"),
        _links("linear"),
        _links("efficient"),
        _links("performer", num_features=32),
        Entry(DIAGONAL, values=lambda seed: {ERROR: _VERSES.trivial_baseline()}, part=LINKS),
        _removed(ATTENTION),
        _removed("mean of sentences", pool="mean"),
        _removed("maximum of sentences", pool="max"),
    ),
    measures=measures,
    claims=(
        Claim(
            "Softmax attention finds what people link: its error is below that of the diagonal.",
            "Bahdanau et al. 2014, arXiv 1409.0473; Chen et al. 2020, arXiv 2004.14675",
            (below(named(LINKS, "softmax"), named(LINKS, DIAGONAL), measure=ERROR),),
        ),
        Claim(
            "So does attention with additive scores, with which it began.",
            "Bahdanau et al. 2014, arXiv 1409.0473",
            (below(named(LINKS, ADDITIVE), named(LINKS, DIAGONAL), measure=ERROR),),
        ),
        Claim(
            "Linear attention is less readable: its error is above that of softmax.",
            "a survey article, of synthesized and linear weights",
            tuple(below(named(LINKS, "softmax"), named(LINKS, other)) for other in _KERNELS),
        ),
        Claim(
            "Gradients find links that weights miss: the error of gradient x attention is below that of the weights.",
            "Ding et al. 2019, arXiv 1906.10282, by the gradient of word embeddings",
            (reaches(named(LINKS, "softmax"), 0.0, measure=saved(GRADIENT)),),
        ),
        Claim(
            "So does leaving a word out: the error is below that of the weights.",
            "Li et al. 2019, ACL (P19-1124), by the difference of predictions",
            (reaches(named(LINKS, "softmax"), 0.0, measure=saved(LEFT_OUT)),),
        ),
        Claim(
            "The weights of sentences say which of them decide: a rank correlation above 0.5 with what is lost without each.",
            "Yang et al. 2016, NAACL, which shows weights as explanations",
            (reaches(named(REMOVED, ATTENTION), 0.5, measure=RANKS),),
        ),
        Claim(
            "Attention is not explanation: that correlation is weak, below 0.5, for sentences and for words.",
            "Jain & Wallace 2019, arXiv 1902.10186",
            (
                stays_below(named(REMOVED, ATTENTION), 0.5, measure=RANKS),
                stays_below(named(LINKS, "softmax"), 0.5, measure=correlation(WEIGHTS, LEFT_OUT)),
            ),
        ),
    ),
    method=(
        "Verses of the New Testament are translated from Greek by one block each way; the error is that of linking each English "
        "word to the Greek word of the largest score. Scores are the attention weights; these times their gradient, of the true "
        "word's log-probability; and what that loses without each Greek token. A network over sentences classifies package "
        "descriptions; each sentence is taken out in turn, and what the answer's logit loses is set beside its weight, over "
        f"documents of three sentences and more. Errors by attribution and correlations are of {VERSES} verses, the metric of all."
    ),
    limits=(
        "One block and 600 batches: translation is poor, and links of function words are hard.",
        "What is lost without a word or sentence is itself one measure of importance, not the truth.",
    ),
)
