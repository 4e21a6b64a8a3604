"""heads: how many, how unlike, and how many of them must be learned at all."""

from typing import Any

import torch

from regard.lab.findings.finding import Claim, Entry, Finding, Fitted, below, near, reaches
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
from regard.nn.disagreement import disagreement

FOUR, ONE, EIGHT = "4 heads", "1 head", "8 heads"
SUBSPACE, POSITION, OUTPUT = (
    f"4 heads, {kind} terms" for kind in ("subspace", "position", "output")
)
SHARED, RANDOM, FIXED = "4 heads, keys from queries", "4 random patterns", "3 fixed heads of 4"
ALIKE = "likeness of the heads"
_MODELS: dict[str, dict[str, Any]] = {
    FOUR: {},
    ONE: {"num_heads": 1},
    EIGHT: {"num_heads": 8},
    SUBSPACE: {},
    POSITION: {},
    OUTPUT: {},
    SHARED: {"mixer_options": {"shared_qk": True}},
    RANDOM: {"mixer": "synthesizer_random"},
    FIXED: {
        "mixer": "fixed_patterns",
        "mixer_options": {"patterns": ("current", "previous", "left")},
    },
    UNMIXED: unmixed(),
}
_SEEN = (below(FOUR, UNMIXED, by=0.1),)
_TERMS = {SUBSPACE: "subspace", POSITION: "position", OUTPUT: "output"}


def _entry(label: str) -> Entry:
    def run() -> Run:
        terms = {"disagreement": _TERMS[label]} if label in _TERMS else {}
        train = brief(steps=STEPS, batch_size=16, lr=4e-3, **terms)
        return Run(task=bytes_of_python(), model=byte_model(**_MODELS[label]), train=train)

    return Entry(label, run)


def measures(fitted: Fitted) -> dict[str, float]:
    """Mean cosine between the outputs of two heads of a block, on one batch of the test split; a head with itself is 1."""
    task, test = fitted.run.task, fitted.splits.test
    batch = task.collate([test[i] for i in range(16)])
    model: Any = fitted.model
    found: list[float] = []

    def note(mixer: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        if mixer.num_heads == 1:
            return
        seen = mixer.observe(args[0], **kwargs)
        if seen.heads is not None:
            found.append(-float(disagreement(seen, "output", valid=kwargs["mask"].valid)))

    handles = [
        mixer.register_forward_pre_hook(note, with_kwargs=True) for mixer in model.encoder.mixers
    ]
    with torch.no_grad():
        model(batch["tokens"], valid=batch["valid"])
    for handle in handles:
        handle.remove()
    return {ALIKE: sum(found) / len(found)} if found else {}


HEADS = Finding(
    name="heads",
    about="Do more heads help, does making them disagree help, and must they be learned?",
    entries=tuple(map(_entry, _MODELS)),
    measures=measures,
    claims=(
        Claim(
            "Several heads are better than one.",
            "Vaswani et al. 2017, arXiv 1706.03762: 25.5 BLEU with 4, 24.9 with 1",
            (below(FOUR, ONE),),
        ),
        Claim(
            "Past a few heads more of them gain nothing: 4 and 8 are within 0.03 bits.",
            "Vaswani et al. 2017, arXiv 1706.03762: 25.5 BLEU with 4, 25.8 with 8 and 16, 25.4 with 32",
            (near(EIGHT, FOUR, within=0.03),),
            when=_SEEN,
        ),
        Claim(
            "Each of the three disagreement terms makes the model better.",
            "Li et al. 2018, arXiv 1810.10183",
            tuple(below(term, FOUR) for term in _TERMS),
        ),
        Claim(
            "The output term makes the heads' outputs less alike.",
            "Li et al. 2018, arXiv 1810.10183",
            (below(OUTPUT, FOUR, measure=ALIKE),),
        ),
        Claim(
            "Keys made from queries cost nothing: at most 0.03 bits.",
            "Kitaev et al. 2020, arXiv 2001.04451",
            (below(SHARED, FOUR, by=-0.03),),
            when=_SEEN,
        ),
        Claim(
            "Three of four heads may be fixed patterns at no loss: of at most 0.03 bits.",
            "Raganato et al. 2020, arXiv 2002.10260, of seven of eight heads in an encoder",
            (below(FIXED, FOUR, by=-0.03),),
            when=_SEEN,
            withdrawn=unequal(f"`{FIXED}` less it: 0.099 bits (0.082 to 0.116, 3 seeds)"),
        ),
        Claim(
            "Random patterns, learned for no token in particular, come near: at most 0.1 bits worse.",
            "Tay et al. 2020, arXiv 2005.00743",
            (below(RANDOM, FOUR, by=-0.1),),
            when=_SEEN,
        ),
        Claim(
            "Heads that are left alone are alike: a mean cosine above 0.5, where 0.25 is the least for four.",
            "a survey article, of BERT's layer 3",
            (reaches(FOUR, 0.5, measure=ALIKE),),
        ),
    ),
    method=(
        "The next byte of Python's own source, 64 bytes at a time; two blocks of width 48. Terms have the paper's weight, 1."
    ),
    limits=(
        early(),
        SINUSOIDS,
        "The papers translate with eight heads and more, in six layers; here a small model has two.",
        "Width is divided among the heads, so that eight of them have six channels each.",
    ),
)
