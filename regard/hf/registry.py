"""Names of attention implementations, and their mechanisms in config.json, so that a model is opened with the same one.

    regard.hf.register()                                                   every mechanism that is a function of q, k and v
    regard.hf.register("window", AttentionConfig("local", {"window_size": 64}))     attn_implementation="regard_window"

    "attn_implementation": "regard_window",
    "regard_attention": {"regard_window": {"mixer": "local", "options": {"window_size": 64}, "max_len": 4096, "seed": 0}}

Transformers reads the first field but never writes it, and a name alone says no options. Where Regard is not
registered, it refuses the name that it does not know.
"""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from types import BuiltinFunctionType, FunctionType
from typing import Any

from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    PretrainedConfig,
    PreTrainedModel,
)

from regard.core import (
    OptionError,
    StoredDataError,
    UnknownNameError,
    UnsupportedError,
    shown,
    tuples,
)
from regard.hf.attention import AttentionConfig, AttentionFunction
from regard.hf.masks import token_mask
from regard.hf.wrap import register_models
from regard.mixers import MIXERS

FIELD = "regard_attention"
PREFIX = "regard_"
Record = dict[str, Any]  # JSON values
PARTS = ("cross", "windowed")
"""Fields of a record that are records."""


def register(name: str | None = None, config: AttentionConfig | None = None) -> tuple[str, ...]:
    """Register one mechanism as `regard_<name>`, or every one that can be, with its default options.

    From then on Transformers' configs write the mechanism into config.json, and read it from there; a model with a name of
    Regard's that it cannot have is refused with the reason. Without a name, what is registered already stays as it is, and the
    Auto classes open folders of Regard's own models, too.
    Returns the names for `attn_implementation`. Raises UnsupportedError, with the reason, for a config whose mechanism is
    not a function of q, k and v alone, and OptionError for what is no AttentionConfig.
    """
    if (name is None) != (config is None):
        raise OptionError("register takes a name and an AttentionConfig, or neither of them")
    if name is not None and config is not None:
        chosen = {name: config}
    else:
        register_models()
        chosen = {}
        for entry in MIXERS.values():
            with suppress(UnsupportedError):
                chosen[entry.name] = registered(PREFIX + entry.name) or AttentionConfig(entry)
    patch_transformers()
    for short, one in chosen.items():
        enter(short, one)
    return tuple(PREFIX + short for short in chosen)


def enter(short: str, config: AttentionConfig) -> None:
    """Its mask function too: without one Transformers makes no mask at all."""
    AttentionInterface.register(PREFIX + short, AttentionFunction(config))
    AttentionMaskInterface.register(PREFIX + short, token_mask)


def patch_transformers() -> None:
    """Make configs write the mechanism that they name, and read it, and models check its name. A second call does nothing."""
    if hasattr(PretrainedConfig, FIELD):
        return
    plain = PretrainedConfig.to_dict

    @wraps(plain)
    def to_dict(self: PretrainedConfig) -> Record:
        records = used(self)
        more = {"attn_implementation": named(self), FIELD: records} if records else {}
        return plain(self) | more

    PretrainedConfig.to_dict = to_dict  # type: ignore[method-assign]
    for method in ("get_correct_attn_implementation", "set_attn_implementation"):
        setattr(PreTrainedModel, method, _checking(getattr(PreTrainedModel, method)))
    setattr(PretrainedConfig, FIELD, property(used, restore))


def _checking(method: Callable) -> Callable:
    """A method of models, whose first argument is the name of an implementation."""

    @wraps(method)
    def call(self: PreTrainedModel, *args: Any, **options: Any) -> Any:
        name = next(iter((*args, *options.values())), None)
        if isinstance(name, str) and name.startswith(PREFIX):
            _check(type(self), name)
        return method(self, *args, **options)

    return call


def _check(model: type[PreTrainedModel], name: str) -> None:
    """Raises UnsupportedError, with the reason, and UnknownNameError for a name that a model of this class cannot have."""
    if registered(name) is None:
        if (short := name.removeprefix(PREFIX)) in MIXERS:
            AttentionConfig(short)  # raises with the reason
        known = filter(registered, AttentionInterface._global_mapping)
        raise UnknownNameError("attn_implementation", name, known)
    of = model.__module__.partition(".")[0]
    if of == "regard" or (of == "transformers" and not model._can_set_attn_implementation()):
        raise UnsupportedError(
            f"{model.__name__} does not support attn_implementation={name!r}: it calls no function for attention"
        )


def registered(name: object) -> AttentionConfig | None:
    function = AttentionInterface._global_mapping.get(name) if isinstance(name, str) else None
    return function.config if isinstance(function, AttentionFunction) else None


def named(config: PretrainedConfig) -> str | Record | None:
    """What `attn_implementation` must be for this config and its sub-configs, as far as mechanisms of Regard are named."""
    own = config._attn_implementation if registered(config._attn_implementation) else None
    if not config.sub_configs:
        return own
    parts = {key: named(part) for key, part in _parts(config).items()}
    return {key: name for key, name in {"": own, **parts}.items() if name is not None} or None


def used(config: PretrainedConfig) -> Record:
    """Name -> record of each mechanism that this config or a sub-config names."""
    return {
        name: record(made) for name in _all_names(config) if name and (made := registered(name))
    }


def record(config: AttentionConfig) -> Record:
    """The config as JSON holds it. "python" is true where it has a class, a function or an object: they have no JSON."""
    cls, python = config.cls, []

    def named(value: Any) -> Any:
        if isinstance(value, Mapping):
            return dict(value)
        python.append(value)
        if isinstance(value, type | FunctionType | BuiltinFunctionType):
            return f"{value.__module__}:{value.__qualname__}"
        return re.sub(" at 0x[0-9a-f]+", "", repr(value))  # another process has other addresses

    told: Record = {"mixer": cls.name if cls in MIXERS.values() else cls}
    told |= {part: record(of) for part in PARTS if (of := getattr(config, part))}
    made = json.loads(json.dumps(vars(config) | told, default=named))
    return made | ({"python": True} if python else {})


def restore(config: PretrainedConfig, records: object) -> None:
    """Register what config.json holds under the names that this config uses.

    Raises StoredDataError for a field that names no mechanism or wrong options, and OptionError where the name is
    registered here with other options, or where the record holds objects of Python.
    """
    if not isinstance(records, Mapping) or not all(isinstance(name, str) for name in records):
        raise StoredDataError(
            f"config.json: {FIELD} must hold records by name, got {shown(records)}"
        )
    names = _all_names(config)
    if wrong := [name for name in names if not isinstance(name, str | None)]:
        raise StoredDataError(f"config.json: attn_implementation cannot be {shown(wrong[0])}")
    if names == [None] and records and not config.sub_configs:
        raise StoredDataError(
            f"config.json: {FIELD} has a record of {', '.join(records)}, and attn_implementation is missing or None. Name "
            f"one ('sdpa' is Transformers' own), or remove {FIELD}."
        )
    for name in filter(None, names):
        if name in records:
            _restore(name, records[name])


def _restore(name: str, found: object) -> None:
    here = registered(name)
    if here is not None and record(here) == found:
        return
    if not name.startswith(PREFIX):
        raise StoredDataError(
            f"config.json: {FIELD} cannot say what {name} is: names begin with {PREFIX}"
        )
    short = name.removeprefix(PREFIX)
    if isinstance(found, Mapping) and found.get("python") is True:
        raise OptionError(
            f"config.json cannot give {name}: it is {shown(found)}, with classes or objects of Python. First register the "
            f"same: regard.hf.register({short!r}, AttentionConfig(...))."
        )
    made = _read(name, found)
    if here is None:
        enter(short, made)
    elif record(here) != record(made):
        raise OptionError(
            f"config.json cannot give {name}: it is {shown(record(made))} there, and registered here as "
            f"{shown(record(here))}. Register yours under another name before the model is opened."
        )


def _read(name: str, found: object) -> AttentionConfig:
    if not isinstance(found, Mapping):
        raise StoredDataError(
            f"config.json: {FIELD} of {name} must be a record, got {shown(found)}"
        )
    given = tuples(found)
    for part in PARTS:
        if given.get(part) is not None:
            given[part] = _read(name, found[part])
    try:
        return AttentionConfig(**given)
    except (ValueError, TypeError, RuntimeError) as error:
        raise StoredDataError(f"config.json: {name} cannot be made: {error}") from None


def _parts(config: PretrainedConfig) -> dict[str, PretrainedConfig]:
    return {
        key: part
        for key in config.sub_configs
        if isinstance(part := getattr(config, key, None), PretrainedConfig)
    }


def _all_names(config: PretrainedConfig) -> list[str | None]:
    return sum(map(_all_names, _parts(config).values()), [config._attn_implementation])
