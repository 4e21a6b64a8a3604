"""documents: reading sentence by sentence beside reading flat, and attention beside the mean and the maximum."""

from typing import Any

from regard.lab.findings.finding import Claim, Entry, Finding, above
from regard.lab.findings.small import brief
from regard.lab.recipes import Run
from regard.lab.tasks import DebianSections
from regard.models import HANConfig

HAN, AVERAGE, MAXIMUM, FLAT, KIM, WORDS = (
    "two levels, attention (HAN)",
    "two levels, mean",
    "two levels, maximum",
    "flat, GRU and attention",
    "flat, convolution and maximum",
    "flat, mean of the words",
)
_MODELS: dict[str, dict[str, Any]] = {
    HAN: {},
    AVERAGE: {"pool": "mean"},
    MAXIMUM: {"pool": "max"},
    "two levels of softmax attention": {"word_encoder": "softmax", "sentence_encoder": "softmax"},
    FLAT: {"flat": True},
    KIM: {"flat": True, "word_encoder": "convolution", "pool": "max"},
    WORDS: {"flat": True, "word_encoder": "none", "pool": "mean"},
}


def _entry(label: str) -> Entry:
    def run() -> Run:
        task = DebianSections(num_sources=4000, vocab_size=5000, max_sentences=6, max_words=24)
        model = HANConfig(
            **task.facts, dim=32, hidden_dim=16, attention_dim=32, num_heads=2, **_MODELS[label]
        )
        return Run(task=task, model=model, train=brief(steps=600, batch_size=32, lr=5e-3))

    return Entry(label, run)


DOCUMENTS = Finding(
    name="documents",
    about="Does it help to read a document sentence by sentence, and to weigh words and sentences by attention?",
    entries=tuple(map(_entry, _MODELS)),
    claims=(
        Claim(
            "Attention is better than the mean and the maximum over words and sentences.",
            "Yang et al. 2016, NAACL: 71.0 % against 69.9 % and 70.1 % on Yelp 2015",
            (above(HAN, AVERAGE), above(HAN, MAXIMUM)),
        ),
        Claim(
            "Two levels are better than one.",
            "Yang et al. 2016, NAACL",
            (above(HAN, FLAT), above(HAN, KIM)),
        ),
        Claim(
            "Even without attention, two levels are better than a flat convolution.",
            "Yang et al. 2016, NAACL",
            (above(AVERAGE, KIM),),
        ),
        Claim(
            "The order of words matters: every encoder is better than the mean of the words.",
            "Yang et al. 2016, NAACL",
            tuple(above(label, WORDS) for label in (HAN, FLAT, KIM)),
        ),
    ),
    method=(
        "Descriptions of Debian packages in 27 sections, of 4,000 source packages: up to 6 sentences of up to 24 words. Width 32 everywhere."
    ),
    limits=(
        "Descriptions are short: five sentences, where the paper's reviews have ten and more.",
        "600 steps of 32 documents, one learning rate for all; the paper starts from word vectors, and these from chance.",
    ),
)
