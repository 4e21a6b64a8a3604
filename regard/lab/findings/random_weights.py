"""random: how little is lost when weights, features or blocks are drawn at random."""

from typing import Any

from regard.lab.findings.finding import Claim, Entry, Finding, above, below, near
from regard.lab.findings.small import (
    SINUSOIDS,
    STEPS,
    UNMIXED,
    brief,
    byte_model,
    bytes_of_python,
    early,
    unmixed,
)
from regard.lab.recipes import Run


def _entry(label: str, mixer: str, line: str, **options: Any) -> Entry:
    return _made(label, line, {"mixer": mixer, "mixer_options": options})


def _made(label: str, line: str, fields: dict[str, Any]) -> Entry:
    def run() -> Run:
        train = brief(steps=STEPS, batch_size=16, lr=4e-3)
        return Run(task=bytes_of_python(), model=byte_model(**fields), train=train)

    return Entry(label, run, line=line)


_SEEN = (below("softmax", UNMIXED, by=0.1),)


RANDOM = Finding(
    name="random",
    about="How little is lost when weights, features or blocks are random?",
    entries=(
        _entry("softmax", "softmax", "exact"),
        _entry("Performer, 4 features", "performer", "Performer", num_features=4),
        _entry("Performer, 64 features", "performer", "Performer", num_features=64),
        _entry("random table, trained", "synthesizer_random", "Synthesizer"),
        _entry("random table, never trained", "synthesizer_random", "Synthesizer", trainable=False),
        _entry("BigBird, blocks of 8, 2 random", "bigbird", "BigBird", block_size=8, num_random=2),
        _entry(
            "BigBird, blocks of 8, none random", "bigbird", "BigBird", block_size=8, num_random=0
        ),
        _entry("linear, elu + 1", "linear", "feature maps"),
        _entry("linear, relu", "linear", "feature maps", feature_map="relu"),
        _entry("rfa, 32 random sines", "rfa", "feature maps", num_features=32),
        _made(UNMIXED, "exact", unmixed()),
    ),
    claims=(
        Claim(
            "Performer's random features reach softmax, within 0.05 bits.",
            "Choromanski et al. 2020, arXiv 2009.14794",
            (near("Performer, 64 features", "softmax", within=0.05),),
            when=_SEEN,
        ),
        Claim(
            "More features are better.",
            "Choromanski et al. 2020, arXiv 2009.14794",
            (below("Performer, 64 features", "Performer, 4 features"),),
        ),
        Claim(
            "A random table of weights that is trained comes close to softmax: within 0.1 bits.",
            "Tay et al. 2020, arXiv 2005.00743 (LM1B: perplexity 40.6 against 38.2)",
            (near("random table, trained", "softmax", within=0.1),),
            when=_SEEN,
        ),
        Claim(
            "The same table, never trained, is much worse than softmax: more than 0.1 bits.",
            "Tay et al. 2020, arXiv 2005.00743 (LM1B: perplexity 50.5 against 38.2)",
            (above("random table, never trained", "softmax", by=0.1),),
            when=_SEEN,
        ),
        Claim(
            "Random blocks help BigBird.",
            "Zaheer et al. 2020, arXiv 2007.14062",
            (below("BigBird, blocks of 8, 2 random", "BigBird, blocks of 8, none random"),),
        ),
        Claim(
            "Random sines are as good as elu + 1, or better.",
            "Peng et al. 2021, arXiv 2103.02143",
            (below("rfa, 32 random sines", "linear, elu + 1", by=-0.02),),
            when=(below("linear, elu + 1", UNMIXED, by=0.1),),
        ),
    ),
    method=(
        "The next byte of Python's own source, 64 bytes at a time, in bits a byte: lower is better. Two blocks of width 48 "
        "with 4 heads; the same batches and rate for all. "
        f"{UNMIXED.capitalize()}: each token attends to itself alone."
    ),
    limits=(
        early(),
        SINUSOIDS,
        "64 bytes are few: BigBird's random blocks are for thousands of tokens, where no window reaches far.",
        "The published models have 60 million parameters and more, and see a thousand times the text.",
    ),
)
