"""Every entry of the catalogue in every variant, at the laws' sizes."""

from collections.abc import Callable
from functools import partial

from regard import MIXERS, Mixer, build

FACTS = {"dim": 24, "num_heads": 3, "max_len": 64}
VARIANTS = [
    (cls.name, variant, options)
    for cls in MIXERS
    for variant, options in {"default": {}, **cls.variants}.items()
]


def factory(name: str, options: dict) -> Callable[[], Mixer]:
    return partial(build, name, **FACTS, **options)
