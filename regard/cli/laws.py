"""`regard laws` on the command line: which laws a mixer keeps, and what breaks one."""

import sys
from collections.abc import Sequence
from importlib import import_module

from regard.core import Mixer, OptionError, UnknownNameError

FACTS = {"dim": 24, "num_heads": 3, "max_len": 64}


def verdicts(name: str, laws: Sequence[str]) -> list[dict[str, str]]:
    """One row for each law: the law, whether it holds in every variant, and what breaks it."""
    from regard import build
    from regard.testing import LAWS, LawError, check_mixer

    for law in laws:
        if law not in LAWS:
            raise UnknownNameError("law", law, LAWS)
    cls = mixer_class(name)
    variants = {"default": {}, **cls.variants}
    for options in variants.values():  # wrong options are found before any law runs
        build(cls, **FACTS | dict(options))
    rows = []
    for law in laws or LAWS:
        broken = []
        for variant, options in variants.items():
            try:
                check_mixer(lambda options=options: build(cls, **FACTS | dict(options)), law)  # type: ignore[misc]
            except LawError as error:
                broken.append(f"{variant}: {str(error).removeprefix(f'{law}: ')}")
        verdict = "broken" if broken else f"holds in {len(variants)} variants"
        rows.append({"law": law, "verdict": verdict, "why": "\n".join(broken)})
    return rows


def mixer_class(name: str) -> type[Mixer]:
    """The mixer of this name, or the class of `module:Class`, where the module may lie in the current folder."""
    from regard.mixers import MIXERS

    module, colon, attribute = name.partition(":")
    if not colon:
        return MIXERS[name]
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise OptionError(f"{name}: there is no module {module!r} here") from None
    if not (isinstance(found, type) and issubclass(found, Mixer)):
        raise OptionError(f"{name}: {attribute!r} in {module} is not a subclass of regard.Mixer")
    return found
