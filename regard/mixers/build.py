"""Making a mixer from its name (or class) and options, with errors that name what is wrong."""

import inspect
from typing import Any

from regard.core import Mixer, OptionError, Options, check_option, shown
from regard.functional.rows import Impl, check_impl


def build(
    mixer: str | type[Mixer],
    *,
    dim: int,
    num_heads: int | None = None,
    max_len: int | None = None,
    impl: Impl | None = None,
    **options: Any,
) -> Mixer:
    """Returns a mixer of this name or class.

    `dim`, `num_heads`, `max_len` and `impl` are facts of the stack: offered to every mixer, and taken by those that
    need them. `impl` says who computes ("auto", "plain", or an entry of `regard.fast`; see `regard.functional.rows`) and never changes
    the meaning. `options` are the mechanism's own; one that it does not have is an error that suggests the near name.

    >>> build("softmax", dim=512, num_heads=8, num_kv_heads=2)

    Raises UnknownNameError (mixer or option), OptionError (a needed fact is missing, a value cannot be used),
    UnsupportedError (an impl that this mixer does not have).
    """
    cls = resolve(mixer)
    known = option_names(cls)
    facts = {"dim": dim, "num_heads": num_heads, "max_len": max_len, "impl": impl}
    if impl is not None and "impl" not in known:
        check_impl(cls.name, impl)
    for name in {"num_heads", "max_len"} - {*known}:
        check_option(cls.name, name, facts[name], int | None)
    taken = {name: fact for name, fact in facts.items() if name in known and fact is not None}
    return cls(**taken | options)


def check_own(who: str, options: Options, *facts: str) -> None:
    """Raise OptionError for a mechanism's option that is the caller's to give."""
    if taken := sorted({"mixer", "dim", "num_heads", "max_len", *facts} & {*options}):
        raise OptionError(
            f"{who}: {taken[0]} cannot be among a mechanism's options: it is the model's"
        )


def resolve(mixer: str | type[Mixer]) -> type[Mixer]:
    if not isinstance(mixer, str):
        if not isinstance(mixer, type) or not issubclass(mixer, Mixer):
            raise OptionError(
                f"{getattr(mixer, '__name__', shown(mixer))} is not a mixer: pass a name, or a subclass of regard.Mixer"
            )
        facts = (fact for fact in ("name", "capabilities") if not hasattr(mixer, fact))
        if lacks := [*facts, *sorted(mixer.__abstractmethods__)]:
            raise OptionError(f"{mixer.__name__} has no {lacks[0]}: declare it in the class")
        return mixer
    from regard.mixers import MIXERS

    return MIXERS[mixer]


def option_names(cls: type[Mixer]) -> list[str]:
    return list(inspect.signature(cls).parameters)
