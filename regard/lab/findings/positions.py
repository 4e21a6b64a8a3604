"""positions: which kind serves at the trained length, which beyond it, and which on a grid."""

from dataclasses import replace
from typing import Any

from regard.lab.findings.finding import Claim, Entry, Finding, Fitted, above, below, named, near
from regard.lab.findings.small import (
    STEPS,
    UNMIXED,
    brief,
    byte_model,
    bytes_of_python,
    early,
    test_split,
    unmixed,
)
from regard.lab.recipes import Run
from regard.lab.tasks import Digits, StdlibBytes
from regard.lab.train.batches import in_order
from regard.models import ClassifierConfig

TEXT, GRID = "Python's source", "digits, 8 x 8 pixels"
TRAINED, LONGEST = 64, 256  # bytes
LOSS = f"bits lost at {LONGEST}"


def _text(position: str) -> Entry:
    fields = unmixed() if position == UNMIXED else {"position": position}

    def run() -> Run:
        return Run(
            task=bytes_of_python(TRAINED),
            model=byte_model(**fields, length=LONGEST),
            train=brief(steps=STEPS, batch_size=16, lr=4e-3),
        )

    return Entry(position, run, part=TEXT)


def _grid(position: str, **options: Any) -> Entry:
    def run() -> Run:
        task = Digits()
        model = ClassifierConfig(
            **task.facts,
            max_len=task.max_len,
            dim=32,
            num_heads=4,
            num_layers=2,
            position=position,
            position_options=options,
        )
        return Run(task=task, model=model, train=brief(steps=600, batch_size=32, lr=4e-3))

    return Entry(position, run, part=GRID)


def measures(fitted: Fitted) -> dict[str, float]:
    """Bits a byte on longer windows of the same files, and what is lost beside the trained length."""
    if not isinstance(fitted.run.task, StdlibBytes):
        return {}
    found = {}
    for length in (2 * TRAINED, LONGEST):
        task = replace(fitted.run.task, length=length, test_size=100)
        batches = in_order(test_split(task), 20, task.collate)
        found[f"bits at {length}"] = task.score(fitted.model, batches)
    return found | {LOSS: found[f"bits at {LONGEST}"] - fitted.result.value}


_TEXTS = ("sinusoidal", "learned", "rotary", "t5", "alibi", "none")

_SEEN = (below(named(TEXT, "sinusoidal"), named(TEXT, UNMIXED), by=0.1),)

POSITIONS = Finding(
    name="positions",
    about="Which positions serve at the trained length, which beyond it, and which on a grid?",
    entries=(
        *map(_text, _TEXTS),
        _text(UNMIXED),
        _grid("none"),
        _grid("sinusoidal"),
        _grid("learned"),
        _grid("axial", shape=(8, 8)),
        _grid("coordinates", grid=(8, 8)),
    ),
    claims=(
        Claim(
            "Sinusoids do not extrapolate: ALiBi loses less.",
            "Press et al. 2021, arXiv 2108.12409",
            (below(named(TEXT, "alibi"), named(TEXT, "sinusoidal"), measure=LOSS),),
        ),
        Claim(
            "Rotary positions extrapolate better than sinusoids, and T5's bias better than both.",
            "Press et al. 2021, arXiv 2108.12409",
            (
                below(named(TEXT, "rotary"), named(TEXT, "sinusoidal"), measure=LOSS),
                below(named(TEXT, "t5"), named(TEXT, "rotary"), measure=LOSS),
            ),
        ),
        Claim(
            "Learned positions and sinusoids are as good as each other at the trained length, within 0.05 bits.",
            "Vaswani et al. 2017, arXiv 1706.03762",
            (near(named(TEXT, "learned"), named(TEXT, "sinusoidal"), within=0.05),),
            when=_SEEN,
        ),
        Claim(
            "Relative positions beat absolute ones at the trained length.",
            "Su et al. 2021, arXiv 2104.09864; Shaw et al. 2018, arXiv 1803.02155",
            (below(named(TEXT, "rotary"), named(TEXT, "sinusoidal")),),
        ),
        Claim(
            "A causal model hardly needs positions: within 0.1 bits of sinusoids without any.",
            "Haviv et al. 2022, arXiv 2203.16634",
            (near(named(TEXT, "none"), named(TEXT, "sinusoidal"), within=0.1),),
            when=_SEEN,
        ),
        Claim(
            "Coordinates as two channels help where place matters.",
            "Liu et al. 2018, arXiv 1807.03247",
            (above(named(GRID, "coordinates"), named(GRID, "none")),),
        ),
        Claim(
            "Axial tables serve as well as one table of all places, within 0.03.",
            "Kitaev et al. 2020, arXiv 2001.04451",
            (near(named(GRID, "axial"), named(GRID, "learned"), within=0.03),),
        ),
    ),
    measures=measures,
    method=(
        f"Text: the next byte of Python's own source, trained on {TRAINED} bytes at a time and tested on {TRAINED}, {2 * TRAINED} and "
        f"{LONGEST}, in bits a byte (lower is better). Longer windows see more context, so bits lost may be negative. Digits: 64 "
        f"pixels as a sequence, accuracy. {UNMIXED.capitalize()}: sinusoids, and each token attends to itself alone."
    ),
    limits=(
        early(),
        "Windows of other lengths hold other bytes of the same files, the same for all kinds: bits lost compare kinds with each "
        "other, and do not say whether one loses nothing (Press et al. claim that ALiBi does not).",
        "Two blocks of width 48. Rows of learned tables beyond the trained length are as they were drawn.",
        "CoordConv's own task, pixels to coordinates through convolutions, is the suite `coordinates`.",
    ),
)
