"""Every entry of the catalogue in every variant, at the laws' sizes, and the laws that are run on each."""

import inspect
from collections.abc import Callable
from functools import partial

from regard import MIXERS, Mixer, build
from regard.testing import LAWS

FACTS = {"dim": 24, "num_heads": 3, "max_len": 64}
VARIANTS = [
    (cls.name, variant, options)
    for cls in MIXERS.values()
    for variant, options in {"default": {}, **cls.variants}.items()
]


def factory(name: str, options: dict) -> Callable[[], Mixer]:
    return partial(build, name, **FACTS, **options)


def changes_graph(name: str, options: dict) -> bool:
    """Whether a compiled variant is another program than the default's: another number is not, whatever else is."""
    defaults = inspect.signature(MIXERS[name]).parameters
    sizes = {
        option
        for option, value in options.items()
        if type(value) in (int, float) and type(defaults[option].default) in (int, float)
    }
    return set(options) != sizes


def laws_of(name: str, variant: str, options: dict) -> list[str]:
    """All, but for repetitions: `limit` belongs to the class, and another size is the same program, which grows and rounds alike."""
    repeated = set()
    if variant != "default":
        repeated = {"limit"}
        if not changes_graph(name, options):
            repeated |= {"complexity", "compiled", "low_precision", "transforms"}
    return [law for law in LAWS if law not in repeated]
