"""synthesizer: weights that no pair of tokens makes, learned or drawn, alone and blended with dot products."""

from collections.abc import Mapping
from typing import Any

from regard.lab.findings.finding import Claim, Entry, Expected, Finding, above, below, named, near
from regard.lab.findings.small import (
    SINUSOIDS,
    STEPS,
    UNMIXED,
    brief,
    byte_model,
    bytes_of_python,
    early,
    unequal,
    unmixed,
)
from regard.lab.recipes import Run
from regard.lab.tasks import (
    DebianSummary,
    Dialogue,
    Spam,
    StdlibMasked,
    TextPairs,
    TranslateDe,
)
from regard.models import ClassifierConfig, MaskedLanguageModelConfig, TransformerConfig

BYTES, GERMAN, SUMMARY, ANSWERS, TRANSFER = (
    "",  # the next byte
    "English to German",
    "summaries of packages",
    "answers in plays",
    "e-mails after masked bytes",
)
SOFTMAX, DENSE, RANDOM = "softmax", "dense", "random"
_FORMS: dict[str, dict[str, Any]] = {
    SOFTMAX: {},
    DENSE: {"mixer": "synthesizer_dense"},
    RANDOM: {"mixer": "synthesizer_random"},
    UNMIXED: unmixed(),
}
_ALL_FORMS: dict[str, dict[str, Any]] = _FORMS | {
    "dense, one layer": {"mixer": "synthesizer_dense", "mixer_options": {"layers": 1}},
    "random, fixed": {"mixer": "synthesizer_random", "mixer_options": {"trainable": False}},
    "factorized dense": {"mixer": "synthesizer_factorized_dense"},
    "factorized random": {"mixer": "synthesizer_factorized_random"},
    **{
        f"{one} + {other}": {
            "mixer": "mixture",
            "mixer_options": {"members": (f"synthesizer_{one}", member)},
        }
        for one, other, member in (
            (RANDOM, DENSE, "synthesizer_dense"),
            (DENSE, SOFTMAX, "softmax"),
            (RANDOM, SOFTMAX, "softmax"),
        )
    },
}
_PAIRS: Mapping[str, TextPairs] = {
    GERMAN: TranslateDe(metric="bits_per_byte", vocab_size=2048, source_len=32, target_len=32),
    SUMMARY: DebianSummary(metric="bits_per_byte", vocab_size=2048, source_len=64, target_len=24),
    ANSWERS: Dialogue(vocab_size=2048, source_len=32, target_len=32, valid_size=200, test_size=500),
}
_LENGTH = 96  # bytes of a text in pre-training, and of an e-mail


def _on_bytes(label: str) -> Entry:
    def run() -> Run:
        model = byte_model(**_ALL_FORMS[label])
        return Run(
            task=bytes_of_python(), model=model, train=brief(steps=STEPS, batch_size=16, lr=4e-3)
        )

    return Entry(label, run, part=BYTES)


def _on_pairs(part: str, label: str) -> Entry:
    def run() -> Run:
        task, form = _PAIRS[part], _FORMS[label]
        model = TransformerConfig(
            vocab_size=task.vocab_size,
            max_len=task.max_len,
            dim=48,
            num_heads=4,
            num_layers=1,
            **form,
            **{f"decoder_{name}": value for name, value in form.items()},
        )
        return Run(task=task, model=model, train=brief(steps=600, batch_size=32, lr=4e-3, bucket=8))

    return Entry(label, run, part=part)


def _transferred(label: str) -> Entry:
    sizes: dict[str, Any] = {"max_len": _LENGTH, "dim": 48, "num_heads": 4, "num_layers": 2}

    def before() -> Run:
        task = StdlibMasked(length=_LENGTH, valid_size=50, test_size=50)
        model = MaskedLanguageModelConfig(**task.facts, **sizes, **_FORMS[label])
        return Run(task=task, model=model, train=brief(steps=STEPS, batch_size=16, lr=3e-3))

    def run() -> Run:
        task = Spam(length=_LENGTH)
        model = ClassifierConfig(**task.facts, **sizes, **_FORMS[label])
        return Run(task=task, model=model, train=brief(steps=240, batch_size=16, lr=2e-3))

    return Entry(label, run, before=before, part=TRANSFER)


def _seen(part: str, by: float = 0.0) -> tuple[Expected, ...]:
    """Softmax attention's gain over no mixing that every other claim waits for."""
    gains = above if part == TRANSFER else below
    return (gains(named(part, SOFTMAX), named(part, UNMIXED), by=by),)


def _bytes_near(of: str, beside: str, within: float) -> Expected:
    return near(named(BYTES, of), named(BYTES, beside), within=within)


_PAPER = "Tay et al. 2020, arXiv 2005.00743"
_MIXED = _seen(BYTES, by=0.1)

SYNTHESIZER = Finding(
    name="synthesizer",
    about="Do weights need pairs of tokens, or do tables and single tokens make them as well?",
    entries=(
        *map(_on_bytes, _ALL_FORMS),
        *(_on_pairs(part, label) for part in _PAIRS for label in _FORMS),
        *map(_transferred, _FORMS),
    ),
    claims=(
        Claim(
            "Dense comes close to softmax in language modelling: within 0.1 bits.",
            f"{_PAPER} (LM1B: perplexity 40.9 against 38.2)",
            (_bytes_near(DENSE, SOFTMAX, 0.1),),
            when=_MIXED,
            withdrawn=unequal("`dense` less it: 0.355 bits (0.299 to 0.410, 3 seeds)"),
        ),
        Claim(
            "Random comes close to softmax in language modelling: within 0.1 bits.",
            f"{_PAPER} (LM1B: 40.6 against 38.2)",
            (_bytes_near(RANDOM, SOFTMAX, 0.1),),
            when=_MIXED,
        ),
        Claim(
            "Softmax stays ahead of both in language modelling.",
            _PAPER,
            tuple(below(named(BYTES, SOFTMAX), named(BYTES, label)) for label in (DENSE, RANDOM)),
        ),
        Claim(
            "A table that is never trained is far behind one that is: more than 0.1 bits.",
            f"{_PAPER} (LM1B: 50.5 against 40.6)",
            (above(named(BYTES, "random, fixed"), named(BYTES, RANDOM), by=0.1),),
            when=(below(named(BYTES, RANDOM), named(BYTES, UNMIXED), by=0.1),),
        ),
        Claim(
            "Factors lose little: within 0.05 bits of the whole.",
            _PAPER,
            (
                below("factorized dense", DENSE, by=-0.05),
                below("factorized random", RANDOM, by=-0.05),
            ),
            when=_MIXED,
        ),
        Claim(
            "One layer from token to weights serves as well as two: within 0.05 bits.",
            "a survey article, which gives the dense form so",
            (_bytes_near("dense, one layer", DENSE, 0.05),),
            when=_MIXED,
        ),
        Claim(
            "Dense blended with softmax beats softmax.",
            f"{_PAPER} (LM1B: 37.3 against 38.2)",
            (below(named(BYTES, "dense + softmax"), named(BYTES, SOFTMAX)),),
            withdrawn=unequal("`dense + softmax` less it: 0.256 bits (0.217 to 0.295, 3 seeds)"),
        ),
        Claim(
            "Random blended with softmax is no better than softmax in language modelling.",
            f"{_PAPER} (LM1B: 40.1 against 38.2)",
            (above(named(BYTES, "random + softmax"), named(BYTES, SOFTMAX)),),
            withdrawn=unequal("`random + softmax` less it: 0.315 bits (0.299 to 0.331, 3 seeds)"),
        ),
        Claim(
            "Dense and random come close to softmax in translation: within 0.05 bits.",
            f"{_PAPER} (English to German: BLEU 27.4 and 27.3 against 27.7)",
            tuple(
                near(named(GERMAN, label), named(GERMAN, SOFTMAX), within=0.05)
                for label in (DENSE, RANDOM)
            ),
            when=_seen(GERMAN),
        ),
        Claim(
            "Dense and random are worse than softmax in summaries.",
            f"{_PAPER} (CNN/DM: ROUGE-1 36.1 and 35.5 against 38.2)",
            tuple(
                above(named(SUMMARY, label), named(SUMMARY, SOFTMAX)) for label in (DENSE, RANDOM)
            ),
            when=_seen(SUMMARY),
        ),
        Claim(
            "Dense and random are better than softmax in dialogue.",
            f"{_PAPER} (PersonaChat, most measures)",
            tuple(
                below(named(ANSWERS, label), named(ANSWERS, SOFTMAX)) for label in (DENSE, RANDOM)
            ),
        ),
        Claim(
            "Fine-tuned after pre-training, dense and random are worse than softmax.",
            f"{_PAPER} (GLUE: 72.0 and 75.1 against 83.5)",
            tuple(
                below(named(TRANSFER, label), named(TRANSFER, SOFTMAX)) for label in (DENSE, RANDOM)
            ),
            when=_seen(TRANSFER),
        ),
    ),
    method=(
        "The next byte of Python's own source, 64 bytes at a time: two blocks of width 48 with 4 heads. Descriptions and messages from "
        "English to German, summaries of package descriptions, and answers to speeches in Shakespeare's plays: one block each way, whose "
        "self-attention is replaced on both sides while the attention to the source stays softmax, scored by the bits that a "
        "byte of the given target costs (lower is better). E-mails, spam or not, by macro-F1, after 1,000 batches of masked bytes "
        f"of Python's source. {UNMIXED.capitalize()}: each token attends to itself alone. The same batches and rate for all of a part."
    ),
    limits=(
        early(),
        SINUSOIDS,
        "Bits of the given target stand for BLEU and ROUGE, which say nothing of models this small; the tasks are of the "
        "article's kinds, and not its data.",
        "Tables of 64 places are small: their cost grows with the square of the longest input.",
    ),
)
