"""explain: do attention weights say which words belong together, and which sentences an answer is owed to?"""

from typing import Any

import torch
from torch import Tensor

from regard.lab.findings.finding import Claim, Entry, Finding, Fitted, below, reaches, stays_below
from regard.lab.findings.small import brief
from regard.lab.recipes import Run
from regard.lab.tasks import DebianSections, GreekEnglish
from regard.models import HANConfig, TransformerConfig

LINKS, REMOVED = "Greek and English words, linked by people", "sentences of a document, taken out"
AGREES, RANKS = "the largest weight is the largest effect", "rank correlation"
ERROR = "alignment_error_rate"


_VERSES = GreekEnglish(reads="predicted", source_len=32, target_len=32)


def _links(mixer: str, **options: Any) -> Entry:
    def run() -> Run:
        task = _VERSES
        model = TransformerConfig(
            vocab_size=task.vocab_size,
            max_len=task.max_len,
            dim=64,
            num_heads=4,
            num_layers=1,
            mixer="local",
            mixer_options={"window_size": 1},
            cross_mixer=mixer,
            cross_mixer_options=options,
        )
        return Run(task=task, model=model, train=brief(steps=300, batch_size=32, lr=3e-3))

    return Entry(mixer, run, part=LINKS)


def _removed(label: str, **options: Any) -> Entry:
    def run() -> Run:
        task = DebianSections(num_sources=4000, vocab_size=5000, max_sentences=6, max_words=24)
        model = HANConfig(
            **task.facts, dim=32, hidden_dim=16, attention_dim=32, num_heads=2, **options
        )
        return Run(task=task, model=model, train=brief(steps=150, batch_size=32, lr=5e-3))

    return Entry(label, run, part=REMOVED)


def measures(fitted: Fitted) -> dict[str, float]:
    """Weights of sentences beside what the answer's logit loses without each of them."""
    if not isinstance(fitted.run.task, DebianSections):
        return {}
    model: Any = fitted.model
    splits, task = fitted.splits, fitted.run.task
    count = min(400, len(splits.test))
    batch = task.collate([splits.test[i] for i in range(count)])
    tokens, valid = batch["tokens"], batch["valid"]
    with torch.no_grad():
        read = model.read(tokens, valid=valid)
        answer = read.logits.argmax(1, keepdim=True)
        whole = read.logits.gather(1, answer)
        lost = []
        for s in range(tokens.shape[1]):
            rest = valid.clone()
            rest[:, s] = False
            lost.append(whole - model(tokens, valid=rest).gather(1, answer))
    return agreement(read.sentences, torch.cat(lost, 1), valid.any(-1))


def agreement(weights: Tensor, effects: Tensor, exists: Tensor) -> dict[str, float]:
    """Over documents of at least three sentences: how often both have their largest at one place, and Spearman's rho."""
    from scipy.stats import spearmanr

    same, chance, rhos = [], [], []
    for weight, effect, there in zip(weights, effects, exists, strict=True):
        n = int(there.sum())
        if n < 3:
            continue
        w, e = weight[there], effect[there]
        same.append(float(w.argmax() == e.argmax()))
        chance.append(1 / n)
        if len(w.unique()) > 1 and len(e.unique()) > 1:
            rhos.append(float(spearmanr(w.numpy(), e.numpy()).statistic))
    if not same:
        return {}
    found = {AGREES: sum(same) / len(same), "by chance": sum(chance) / len(chance)}
    return found | ({RANKS: sum(rhos) / len(rhos)} if rhos else {})


def _on(part: str, label: str) -> str:
    return f"{part}: {label}"


_CROSS = ("softmax", "linear", "efficient", "performer")
ATTENTION, DIAGONAL = "attention (HAN)", "the diagonal"

EXPLAIN = Finding(
    name="explain",
    about="Do attention weights say which words belong together, and which sentences an answer is owed to?",
    entries=(
        _links("softmax"),
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
            (below(_on(LINKS, "softmax"), _on(LINKS, DIAGONAL), measure=ERROR),),
        ),
        Claim(
            "Linear attention is less readable: its error is above that of softmax.",
            "a survey article, of synthesized and linear weights",
            tuple(below(_on(LINKS, "softmax"), _on(LINKS, other)) for other in _CROSS[1:]),
        ),
        Claim(
            "The weights of sentences say which of them decide: a rank correlation above 0.5 with what is lost without each.",
            "Yang et al. 2016, NAACL, which shows weights as explanations",
            (reaches(_on(REMOVED, ATTENTION), 0.5, measure=RANKS),),
        ),
        Claim(
            "Attention is not explanation: that correlation is weak, below 0.5.",
            "Jain & Wallace 2019, arXiv 1902.10186",
            (stays_below(_on(REMOVED, ATTENTION), 0.5, measure=RANKS),),
        ),
    ),
    method=(
        "Verses of the New Testament are translated from Greek by one block each way; the error is that of linking each English "
        "word to the Greek word of the largest weight. A network over sentences classifies package descriptions; each sentence "
        "is taken out in turn, and what the answer's logit loses is set beside its weight, over documents of three sentences and more."
    ),
    limits=(
        "One block and 300 batches: translation is poor, and links of function words are hard.",
        "What is lost without a sentence is itself one measure of importance, not the truth.",
    ),
)
