"""explain: do attention weights say which words belong together, and which sentences an answer is owed to?"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.explore import gradient_times_attention, layers, rollout, spearman
from regard.explore.agreement import AlignmentCount, count_links
from regard.explore.attribution import replaced
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
WEIGHTS, ROLLOUT, FLOW = "weights", "rollout", "flow"
GRADIENT, INTEGRATED, LEFT_OUT = "gradient x attention", "integrated gradients", "a word left out"
METHODS = (WEIGHTS, ROLLOUT, FLOW, GRADIENT, INTEGRATED, LEFT_OUT)
VERSES = 200  # of the test split, which are attributed
STEPS = 16  # of the integral
GAP = "left over by integrated gradients"


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
    """Error rates of six attributions against people's links, and the mean rank correlation of each with left-out words."""
    counts = dict.fromkeys(METHODS, AlignmentCount())
    correlations: dict[str, list[float]] = {name: [] for name in METHODS[:-1]}
    gap = total = 0.0
    for items in torch.arange(min(VERSES, len(test))).split(20):
        batch = task.collate([test[int(i)] for i in items])
        found, left = attributions(task, model, batch)
        gap, total = gap + float(left.gap.abs().sum()), total + float(left.total.abs().sum())
        for name, scores in found.items():
            counts[name] = counts[name] + count_links(task.links(scores, batch), batch["links"])
        for row, word in batch["links"].any(1).nonzero().tolist():
            there = found[WEIGHTS][row, :, word] > -math.inf
            for name, rhos in correlations.items():
                rho = spearman(*(found[one][row, there, word] for one in (name, LEFT_OUT)))
                if not math.isnan(rho):
                    rhos.append(rho)
    errors = {name: count.error_rate for name, count in counts.items()}
    likeness = {name: sum(rhos) / len(rhos) for name, rhos in correlations.items()}
    return (
        {error(name): value for name, value in errors.items()}
        | {saved(name): errors[WEIGHTS] - errors[name] for name in METHODS[1:]}
        | {correlation(name): value for name, value in likeness.items()}
        | {gained(name): likeness[name] - likeness[WEIGHTS] for name in METHODS[1:-1]}
        | {GAP: gap / total}
    )


def error(name: str) -> str:
    return f"error by {name}"


def saved(name: str) -> str:
    return f"error saved by {name}"


def correlation(name: str) -> str:
    return f"rank correlation, {name} and {LEFT_OUT}"


def gained(name: str) -> str:
    return f"rank correlation with {LEFT_OUT}, {name} less {WEIGHTS}"


class Integral(NamedTuple):
    """scores [B T S] of source tokens; total [B T]: F(x) - F(x') for each target token; gap [B T]: the scores' sum less that."""

    scores: Float[Tensor, "B T S"]
    total: Float[Tensor, "B T"]
    gap: Float[Tensor, "B T"]


def attributions(
    task: GreekEnglish, model: nn.Module, batch: Batch
) -> tuple[Mapping[str, Float[Tensor, "B V W"]], Integral]:
    """Scores of source words for each target word's log-probability, with the true target before it, by METHODS.

    Encoder and decoder have one block each, so that no target token reads another after the cross-attention, and a path
    from a source token to a target token has one token between them: the largest flow is a sum over these.
    """
    labels = batch["labels"].clamp(min=0)[..., None]

    def log_probability(output: Tensor) -> Float[Tensor, "B T"]:
        return output.log_softmax(-1).gather(2, labels)[..., 0]

    given = (batch["source"], batch["target"])
    masks = {name: batch[name] for name in ("valid", "target_valid")}
    products = gradient_times_attention(
        model,
        *given,
        answer=lambda output, _: log_probability(output).sum(1, keepdim=True),
        **masks,
    )
    integral = integrated(task, model, batch, log_probability)
    with evaluation(model):
        encoder, _, cross = (layer.found.values for layer in layers(model, *given, **masks))
        below, above = rollout([encoder]), 0.5 * cross.mean(1)  # half of each block passes it by
        whole = log_probability(task.answer(model, batch))
        lost = []
        for word in range(batch["links"].shape[1]):
            rest = batch["valid"] & (batch["source_word"] != word)
            lost.append(whole - log_probability(task.answer(model, {**batch, "valid": rest})))
        found = {
            WEIGHTS: task.word_weights(model, batch),
            ROLLOUT: task.by_words(above @ below, batch),
            FLOW: task.by_words(torch.minimum(above[..., None], below[:, None]).sum(2), batch),
            GRADIENT: task.by_words(products[-1].sum(1), batch),
            INTEGRATED: task.by_words(integral.scores, batch),
            LEFT_OUT: task.by_target_words(torch.stack(lost, 2), batch),
        }
    return found, integral


def integrated(
    task: GreekEnglish,
    model: Any,
    batch: Batch,
    log_probability: Callable[[Tensor], Float[Tensor, "B T"]],
    steps: int = STEPS,
) -> Integral:
    """`regard.explore.integrated_gradients` of the source, from zero embeddings, for all target tokens in one pass a step.

    A target token's slope reaches the source through its own row of the cross-attention alone.
    """
    table, mixed = model.encoder.embedding.table, list[Tensor]()
    (cross,) = model.decoder.cross_mixers
    hook = cross.register_forward_hook(lambda mixer, args, output: mixed.append(output))
    x = table(batch["source"]).detach()
    scores = []

    def value(share: float) -> tuple[Tensor, Tensor]:
        point = (share * x).requires_grad_()
        with replaced(table, point):
            return point, log_probability(task.answer(model, batch))

    try:
        with evaluation(model), torch.enable_grad():
            for step in range(steps):
                point, found = value((step + 0.5) / steps)
                rows = mixed.pop()
                (slopes,) = torch.autograd.grad(found.sum(), rows, retain_graph=True)
                scores.append(
                    torch.stack(
                        [
                            (torch.autograd.grad(row, point, slope, retain_graph=True)[0] * x).sum(
                                -1
                            )
                            for row, slope in zip(rows.unbind(1), slopes.unbind(1), strict=True)
                        ],
                        1,
                    )
                )
            total = (value(1.0)[1] - value(0.0)[1]).detach()
    finally:
        hook.remove()
    mean = torch.stack(scores).mean(0)
    return Integral(mean, total, mean.sum(-1) - total)


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
    shown=(
        ERROR,
        *map(error, METHODS),
        *map(correlation, METHODS[:-1]),
        GAP,
        AGREES,
        "by chance",
        RANKS,
    ),
    claims=(
        Claim(
            "Softmax attention finds what people link: its error is below that of the diagonal.",
            "Bahdanau et al. 2014, arXiv 1409.0473; Chen et al. 2020, arXiv 2004.14675",
            (below(named(LINKS, "softmax"), named(LINKS, DIAGONAL), measure=ERROR),),
            withdrawn="the model has not learned the task: its error is 0.780, the diagonal's, which needs no model, 0.700",
        ),
        Claim(
            "So does attention with additive scores, with which it began.",
            "Bahdanau et al. 2014, arXiv 1409.0473",
            (below(named(LINKS, ADDITIVE), named(LINKS, DIAGONAL), measure=ERROR),),
            withdrawn="the model has not learned the task: its error is 0.821, the diagonal's, which needs no model, 0.700",
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
            "So do integrated gradients: the error is below that of the weights.",
            "Ding et al. 2019, arXiv 1906.10282, by means of gradients",
            (reaches(named(LINKS, "softmax"), 0.0, measure=saved(INTEGRATED)),),
        ),
        Claim(
            "Integrated gradients rank words more like what is lost without each than the weights do.",
            "He et al. 2019, arXiv 1909.00326, of the importance of words in translation",
            (reaches(named(LINKS, "softmax"), 0.0, measure=gained(INTEGRATED)),),
        ),
        Claim(
            "Rollout and flow, too, rank words more like what is lost without each than the weights do.",
            "Abnar & Zuidema 2020, arXiv 2005.00928, of encoders",
            (
                reaches(named(LINKS, "softmax"), 0.0, measure=gained(ROLLOUT)),
                reaches(named(LINKS, "softmax"), 0.0, measure=gained(FLOW)),
            ),
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
                stays_below(named(LINKS, "softmax"), 0.5, measure=correlation(WEIGHTS)),
            ),
        ),
    ),
    method=(
        "Verses of the New Testament are translated from Greek by one block each way; the error is that of linking each English "
        "word to the Greek word of the largest score. Scores are the attention weights; rollout and flow, which are their products "
        "with the encoder's and the largest flow through both; these times their gradient, of the true word's log-probability; the "
        f"integral of its gradient from zero embeddings of the Greek, in {STEPS} steps; and what it loses without all tokens of a Greek "
        "word. A network over sentences classifies package "
        "descriptions; each sentence is taken out in turn, and what the answer's logit loses is set beside its weight, over "
        f"documents of three sentences and more. Errors by attribution and correlations are of {VERSES} verses, the metric of all."
    ),
    limits=(
        "One block and 600 batches: translation is poor, and links of function words are hard.",
        "What is lost without a word or sentence is itself one measure of importance, not the truth.",
        "Rollout and flow see one block below the cross-attention, whose heads reach one token to either side.",
    ),
)
