"""synthesizer: weights that no pair of tokens makes, learned or drawn, alone and blended with dot products."""

from typing import Any

from regard.lab.findings.finding import Claim, Entry, Finding, above, below, near
from regard.lab.findings.small import EARLY, brief, byte_model, bytes_of_python
from regard.lab.recipes import Run


def _entry(label: str, mixer: str, **options: Any) -> Entry:
    def run() -> Run:
        return Run(
            task=bytes_of_python(),
            model=byte_model(mixer, mixer_options=options),
            train=brief(steps=200, batch_size=16, lr=4e-3),
        )

    return Entry(label, run)


_PAPER = "Tay et al. 2020, arXiv 2005.00743"

SYNTHESIZER = Finding(
    name="synthesizer",
    about="Do weights need pairs of tokens, or do tables and single tokens make them as well?",
    entries=(
        _entry("softmax", "softmax"),
        _entry("dense", "synthesizer_dense"),
        _entry("random", "synthesizer_random"),
        _entry("random, fixed", "synthesizer_random", trainable=False),
        _entry("factorized dense", "synthesizer_factorized_dense"),
        _entry("factorized random", "synthesizer_factorized_random"),
        _entry("random + dense", "mixture", members=("synthesizer_random", "synthesizer_dense")),
        _entry("dense + softmax", "mixture", members=("synthesizer_dense", "softmax")),
        _entry("random + softmax", "mixture", members=("synthesizer_random", "softmax")),
    ),
    claims=(
        Claim(
            "Dense comes close to softmax: within 0.1 bits.",
            f"{_PAPER} (LM1B: perplexity 40.9 against 38.2)",
            (near("dense", "softmax", within=0.1),),
        ),
        Claim(
            "Random comes close to softmax: within 0.1 bits.",
            f"{_PAPER} (LM1B: 40.6 against 38.2)",
            (near("random", "softmax", within=0.1),),
        ),
        Claim(
            "Softmax stays ahead of both in language modelling.",
            _PAPER,
            (below("softmax", "dense"), below("softmax", "random")),
        ),
        Claim(
            "A table that is never trained is far behind one that is: more than 0.1 bits.",
            f"{_PAPER} (LM1B: 50.5 against 40.6)",
            (above("random, fixed", "random", by=0.1),),
        ),
        Claim(
            "Factors lose little: within 0.05 bits of the whole.",
            _PAPER,
            (
                near("factorized dense", "dense", within=0.05),
                near("factorized random", "random", within=0.05),
            ),
        ),
        Claim(
            "Dense blended with softmax beats softmax.",
            f"{_PAPER} (LM1B: 37.3 against 38.2)",
            (below("dense + softmax", "softmax"),),
        ),
        Claim(
            "Random blended with softmax is no better than softmax in language modelling.",
            f"{_PAPER} (LM1B: 40.1 against 38.2)",
            (above("random + softmax", "softmax"),),
        ),
    ),
    method=(
        "The next byte of Python's own source, 64 bytes at a time, in bits a byte: lower is better. Two blocks of width 48 with 4 "
        "heads; the same batches and rate for all."
    ),
    limits=(
        EARLY,
        "Translation, summary, dialogue and transfer, where the article's other claims are, are not among these yet, nor is the "
        "dense form of one layer, which the library does not have.",
        "Tables of 64 places are small: their cost grows with the square of the longest input.",
    ),
)
