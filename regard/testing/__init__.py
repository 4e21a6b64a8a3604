"""The laws that every mixer must satisfy, for anybody's mixer.

>>> from regard.testing import check_mixer
>>> check_mixer(lambda: MyMixer(dim=24, num_heads=3))
"""

from collections.abc import Callable, Iterable
from typing import Any

from regard.core import Mixer, UnknownNameError
from regard.testing.laws import (
    autocast,
    batch,
    causality,
    compiled,
    complexity,
    empty,
    isolation,
    lengths,
    limit,
    map,
    padding,
    poison,
    randomness,
    reference,
    refusals,
    sensitivity,
    streaming,
    transfer,
)
from regard.testing.subject import LawError, Request, Subject

LAWS: dict[str, Callable[[Subject], None]] = {
    "refusals": refusals.law,
    "reference": reference.law,
    "limit": limit.law,
    "causality": causality.law,
    "padding": padding.law,
    "poison": poison.law,
    "sensitivity": sensitivity.law,
    "isolation": isolation.law,
    "streaming": streaming.law,
    "map": map.law,
    "batch": batch.law,
    "empty": empty.law,
    "lengths": lengths.law,
    "randomness": randomness.law,
    "transfer": transfer.law,
    "autocast": autocast.law,
    "compiled": compiled.law,
    "complexity": complexity.law,
}


def check_mixer(
    factory: Callable[[], Mixer],
    laws: str | Iterable[str] = "all",
    *,
    oracle: Callable[..., Any] | None = None,
) -> list[str]:
    """Run laws on the mixers that `factory()` makes; small sizes (dim 24, num_heads 3, max_len 64) are enough.

    laws: "all", or names of LAWS. oracle: a reference function with the signature of `regard.reference.<name>`; by
    default the library's own for its own mixers. Without one, the laws that compare to it have nothing to say.

    Returns the names of the laws that were run; raises LawError, whose text starts with the law's name.
    """
    names = list(LAWS) if laws == "all" else [laws] if isinstance(laws, str) else list(laws)
    for name in names:
        if name not in LAWS:
            raise UnknownNameError("law", name, LAWS)
    subject = Subject(factory, oracle or own_oracle(factory()))
    for name in names:
        try:
            LAWS[name](subject)
        except LawError as error:
            raise LawError(f"{name}: {subject.name}: {error}") from None
        except Exception as error:
            raise LawError(f"{name}: {subject.name}: {type(error).__name__}: {error}") from error
    return names


def own_oracle(mixer: Mixer) -> Callable[..., Any] | None:
    """The library's oracle for its own mixers; None for a class from elsewhere."""
    if not type(mixer).__module__.startswith("regard.mixers."):
        return None
    from regard import reference as oracles

    return getattr(oracles, mixer.name)


__all__ = ["LAWS", "LawError", "Request", "Subject", "check_mixer"]
