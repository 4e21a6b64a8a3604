"""Tells whose keys an attention module of Transformers mixes: those of its own tokens, or of others.

An attention function is given q, k and v, and equal lengths do not say where they came from. The module that calls it
was given the hidden states, so its arguments are read.
"""

import dis
import re
import sys
from functools import cache
from types import CodeType

from torch import Tensor, nn

OTHERS = {"key_value_states", "encoder_hidden_states", "cross_attention_states"}
"""Arguments of `forward` that are the states of the keys, where they are given."""

BESIDE = re.compile(r"mask|posit|value|bias|seqlen|freqs|sine|topk|similarity")
"""Arguments that are no states of keys: masks, places, values (which go with the keys)."""


CACHE = re.compile("past|^cache$")
"""Arguments that may hold keys of an earlier call."""


def keys_of_others(module: nn.Module) -> bool | None:
    """True if the keys of the call under way are those of other tokens than the queries, None if that is not seen.

    It is not seen where `forward` changes the arguments in question, where it takes states under a name that is not
    known here, where they may be stored in a cache, and where another function than `forward` calls.
    """
    frame = sys._getframe(1)
    while frame.f_code.co_name != "forward" or frame.f_locals.get("self") is not module:
        if frame.f_back is None:
            return None
        frame = frame.f_back
    names, changed = _arguments(frame.f_code)
    states = frame.f_locals.get(names[0])
    cached = any(CACHE.search(name) and frame.f_locals.get(name) is not None for name in names)
    others = False
    for name in names[1:]:
        value = frame.f_locals.get(name)
        if name in OTHERS:
            if value is None and (name in changed or cached):
                return None
            if value is not None and value is not states:
                if {name, names[0]} & changed:
                    return None
                others = True
        elif isinstance(value, Tensor) and value is not states and not BESIDE.search(name):
            return None
    return others


@cache
def _arguments(code: CodeType) -> tuple[tuple[str, ...], frozenset[str]]:
    """The arguments' names after `self`, and those of them that the body assigns to."""
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    stored = [
        name
        for step in dis.get_instructions(code)
        if step.opname.startswith(("STORE", "DELETE"))
        for name in (step.argval if isinstance(step.argval, tuple) else (step.argval,))
    ]
    return names, frozenset(names).intersection(stored)
