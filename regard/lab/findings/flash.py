"""flash: gated attention units and FLASH against attention with a feed-forward layer, in quality and in time a step.

The unit is the block: two GAU or FLASH layers for one attention and one feed-forward layer, of equal parameters.
"""

from dataclasses import replace
from typing import Any

from regard.lab.findings.finding import Claim, Entry, Expected, Finding, below, near, stays_below
from regard.lab.findings.small import (
    STEPS,
    TIMED,
    UNMIXED,
    brief,
    byte_model,
    bytes_of_python,
    early,
    step_times,
    unequal,
    unmixed,
)
from regard.lab.recipes import Run
from regard.lab.tasks.masked import StdlibMasked
from regard.models import (
    LanguageModelConfig,
    MaskedLanguageModelConfig,
    count_parameters,
    match_parameters,
)

LENGTHS = (512, 2048, 8192)  # tokens at which steps are timed
_FLASH = {"key_dim": 32, "chunk_size": 16}
_LAYERS: dict[str, dict[str, Any]] = {
    "attention, FFN": {},
    "attention, GLU": {"feed_forward": "swiglu"},
    "FLASH-Quad (GAU)": {"mixer": "gau", "mixer_options": {"key_dim": 32}},
    "FLASH": {"mixer": "flash", "mixer_options": _FLASH},
    "FLASH, published scale": {"mixer": "flash", "mixer_options": {**_FLASH, "scale": "paper"}},
    "FLASH, local part": {"mixer": "flash", "mixer_options": {**_FLASH, "parts": "local"}},
    "FLASH, global part": {"mixer": "flash", "mixer_options": {**_FLASH, "parts": "global"}},
    "mixed chunk, no gate": {"mixer": "mixed_chunk", "mixer_options": {"chunk_size": 16}},
    UNMIXED: unmixed(),
}
QUALITY, MASKED = "next byte", "hidden byte"


def _model(
    label: str, kind: type[LanguageModelConfig] | type[MaskedLanguageModelConfig]
) -> LanguageModelConfig | MaskedLanguageModelConfig:
    plain = byte_model(kind=kind)
    made = byte_model(kind=kind, **_LAYERS[label])
    return made if made == plain else match_parameters(made, count_parameters(plain))


def _quality(label: str) -> Entry:
    def run() -> Run:
        train = brief(steps=STEPS, batch_size=16, lr=4e-3)
        return Run(task=bytes_of_python(), model=_model(label, LanguageModelConfig), train=train)

    return Entry(label, run, part=QUALITY)


def _masked(label: str) -> Entry:
    def run() -> Run:
        task = StdlibMasked(length=64, valid_size=100, test_size=300)
        model = _model(label, MaskedLanguageModelConfig)
        model = replace(model, vocab_size=task.vocab_size)
        return Run(task=task, model=model, train=brief(steps=STEPS, batch_size=16, lr=4e-3))

    return Entry(label, run, part=MASKED)


def _speed(label: str, length: int) -> Entry:
    """At width 128 and chunks of 128, beside the same blocks of fused softmax attention and their feed-forward layer."""

    def values(seed: int) -> dict[str, float]:
        sizes: dict[str, Any] = {"length": length, "dim": 128, "num_layers": 1}
        layers = dict(_LAYERS[label])
        if layers["mixer"] in ("flash", "mixed_chunk"):
            layers["mixer_options"] = layers["mixer_options"] | {"chunk_size": 128}
        plain = byte_model(**sizes)
        model = match_parameters(byte_model(**sizes, **layers), count_parameters(plain))
        return step_times(model, plain, length=length, seed=seed)

    return Entry(label, values=values, part=_time(length))


def _time(length: int) -> str:
    return f"one training step, {length:,} tokens"


def _at(label: str, part: str = QUALITY) -> str:
    return f"{part}: {label}"


_FACTOR = "times softmax's"
_GAU_BEHIND = f"`{_at('FLASH-Quad (GAU)')}` less it: 0.075 bits (0.036 to 0.113, 3 seeds)"
_PAPER = "Hua et al. 2022, arXiv 2202.10447"


def _faster(entry: str) -> Expected:
    return stays_below(entry, 1.0, measure=_FACTOR)


FLASH = Finding(
    name="flash",
    about="Do gated units beat attention with its feed-forward layer, at equal parameters, and are they faster?",
    entries=(
        *map(_quality, _LAYERS),
        *map(_masked, ("attention, FFN", "FLASH-Quad (GAU)", "FLASH", UNMIXED)),
        *(
            _speed(label, length)
            for length in LENGTHS
            for label in ("FLASH-Quad (GAU)", "FLASH", "mixed chunk, no gate")
        ),
    ),
    claims=(
        Claim(
            "GAU is better than attention and feed-forward layer.",
            _PAPER,
            tuple(
                below(_at("FLASH-Quad (GAU)", part), _at("attention, FFN", part))
                for part in (QUALITY, MASKED)
            ),
            withdrawn=unequal(
                _GAU_BEHIND,
                "trained so on hidden bytes, it is 0.252 bits better than FLASH-Quad (GAU) (-0.017 to 0.521, 3 seeds)",
            ),
        ),
        Claim(
            "GAU is better than attention and GLU.",
            _PAPER,
            (below(_at("FLASH-Quad (GAU)"), _at("attention, GLU")),),
            withdrawn=unequal(
                _GAU_BEHIND,
                "trained so with GLU, it is 0.112 bits better than FLASH-Quad (GAU) (0.048 to 0.175, 3 seeds)",
            ),
        ),
        Claim(
            "FLASH is as good as FLASH-Quad, within 0.05 bits.",
            _PAPER,
            tuple(
                near(_at("FLASH", part), _at("FLASH-Quad (GAU)", part), within=0.05)
                for part in (QUALITY, MASKED)
            ),
            when=tuple(
                below(_at("FLASH-Quad (GAU)", part), _at(UNMIXED, part), by=0.1)
                for part in (QUALITY, MASKED)
            ),
        ),
        Claim(
            "Both parts of FLASH are needed, and the local one more.",
            _PAPER,
            (
                below(_at("FLASH"), _at("FLASH, local part")),
                below(_at("FLASH"), _at("FLASH, global part")),
                below(_at("FLASH, local part"), _at("FLASH, global part")),
            ),
        ),
        Claim(
            "The gate is what lets a mixed chunk approximate: without it, it is worse.",
            _PAPER,
            (below(_at("FLASH"), _at("mixed chunk, no gate")),),
        ),
        Claim(
            "FLASH-Quad is faster than softmax attention at every length.",
            _PAPER,
            tuple(_faster(_at("FLASH-Quad (GAU)", _time(length))) for length in LENGTHS),
        ),
        *(
            Claim(
                f"FLASH is faster when long: at {length:,} tokens.",
                _PAPER,
                (_faster(_at("FLASH", _time(length))),),
            )
            for length in LENGTHS[1:]
        ),
    ),
    seeds=tuple(range(6)),
    method=(
        "Quality: the next byte of Python's own source, or hidden ones, 64 bytes at a time, in bits a byte (lower is better); two blocks of width 48, "
        "chunks of 16; no mixing: each token attends to itself alone, with a feed-forward layer. Scale: the visible default of the library "
        "unless said. Time: forward and backward of one block of width 128 and "
        "its output, batch 1, chunks of 128, beside fused softmax attention with its feed-forward layer, in turns."
    ),
    limits=(
        early(),
        TIMED,
        "The article's models have 110 million parameters and more, at 512 to 8,192 tokens; its speed is that of a TPU and of attention "
        "that stores all its weights, and fused attention does not.",
    ),
)
