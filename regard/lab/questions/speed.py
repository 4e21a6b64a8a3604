"""Speed: a block of every mechanism at its default options, forward, training and decoding, beside fused softmax attention."""

from itertools import product

from regard.lab import Entry, Question, Setting
from regard.lab.experiment.passes import PASSES
from regard.mixers import MIXERS

SPEED = Question(
    name="speed",
    about="time and memory of a block of every mechanism to 4,096 tokens: about half an hour",
    entries=tuple(Entry(mixer=name) for name in MIXERS),
    vary=tuple(
        Setting(kind=kind, length=length, unit="block", seconds=20.0)
        for length, kind in product((256, 1024, 4096), PASSES)
        if kind != "prefill"
    ),
    limits=("Times are of this machine, this width and these options alone.",),
)
