"""Every entry of the catalogue in every variant, at the laws' sizes, and the laws that are run on each."""

from collections.abc import Callable
from functools import cache, partial

from regard import MIXERS, Mixer, build
from regard.testing import LAWS

FACTS = {"dim": 24, "num_heads": 3, "max_len": 64}
VARIANTS = [
    (cls.name, *one) for cls in MIXERS.values() for one in [("default", {}), *cls.variants.items()]
]
ALWAYS = {"reference", "streaming", "long"}
OF_CAPABILITY = {
    "causal": {"causality"},
    "padding": {"padding", "poison"},
    "pairwise": {"isolation"},
    "global_tokens": {"sensitivity"},
    "attention_map": {"map", "observed"},
    "any_length": {"lengths"},
    "deterministic": {"randomness"},
    "time": {"complexity"},
    "memory": {"complexity", "training_memory"},
}


def factory(name: str, options: dict) -> Callable[[], Mixer]:
    return partial(build, name, **FACTS, **options)


@cache
def defaults(name: str) -> Mixer:
    return factory(name, {})()


def laws_of(name: str, variant: str, options: dict) -> list[str]:
    """Defaults are asked every law; a variant `reference`, `streaming`, `long`, and the laws of what its options change:
    of each capability that it declares otherwise, and of a number or a program that is another, where they are more than sizes.
    """
    if variant == "default":
        return list(LAWS)
    own, usual = factory(name, options)(), defaults(name)
    asked = set(ALWAYS)
    for field in vars(own.capabilities):
        if getattr(own.capabilities, field) != getattr(usual.capabilities, field):
            asked |= {"refusals", "autocast"} | OF_CAPABILITY.get(field, set())
    if any(_is_more_than_a_size(value, usual.options[option]) for option, value in options.items()):
        asked |= {"free_length", "low_precision", "finite", "autocast"}
    return [law for law in LAWS if law in asked]


def _is_more_than_a_size(value: object, usual: object) -> bool:
    return type(value) not in (int, float) or type(usual) not in (int, float, type(None))
