"""A state knows whose it is: the mixer, its options, and whether the state was given away (`donate=True`).

The mark is an attribute of the state's `length`, so that a state stays a tuple of tensors: it survives a copy and a
file, and is lost where `length` becomes another tensor. A state without a mark is compared with a new one.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from regard.core.errors import ShapeError
from regard.core.options import shown
from regard.core.shapes import is_dense

MARK = "_regard_state"
MOST = "_regard_most"
HARMLESS = {"impl", "dropout"}
"""Options that change nothing that is in a state."""

Identity = tuple[tuple[str, str], ...]


def identity(name: str, options: Mapping[str, Any]) -> Identity:
    """Facts that a mixer must share with the mixer that made a state."""
    told = ((key, shown(value)) for key, value in options.items() if key not in HARMLESS)
    return (("mixer", name), *told)


def mark(state: Any, owner: Identity) -> None:
    if not torch.compiler.is_compiling():
        state.length.__dict__[MARK] = (owner, _shapes(state), "kept", tuple(map(id, state)))


def mark_given_away(state: Any) -> None:
    """The storage of this state may be written over."""
    found = None if torch.compiler.is_compiling() else state.length.__dict__.get(MARK)
    if found is not None:
        state.length.__dict__[MARK] = (*found[:2], "given away", ())


def note_most(length: Tensor, most: int | None) -> None:
    """No row has more tokens than this, so that no step waits for a device to compare a length with its bound."""
    if most is not None and not torch.compiler.is_compiling():
        length.__dict__[MOST] = (most, _times_written(length))


def most_tokens(length: Tensor) -> int | None:
    """The number given to `note_most`; None if that is lost, or the lengths were written since."""
    if torch.compiler.is_compiling():
        return None
    most, written = length.__dict__.get(MOST, (None, 0))
    return most if written == _times_written(length) else None


def _times_written(z: Tensor) -> int:
    return -1 if z.is_inference() else z._version


def carry(old: Tensor, new: Tensor) -> Tensor:
    """`new`, which has the rows of `old` in another order, with the mark of `old`."""
    note_most(new, most_tokens(old))
    found = old.__dict__.get(MARK)
    if found is not None:
        new.__dict__[MARK] = found
    return new


def check_state(
    who: str, state: Any, x: Tensor, owner: Identity, fresh: Callable[[], list[Any]]
) -> None:
    """Raise ShapeError unless the state is this mixer's, fits x and was not given away.

    fresh: new states of the mixer, of each kind that it has, for one row.
    """
    if _is_as_marked(state, x, owner):
        return
    wanted = f"{who}: state must come from initial_state or extend of this mixer"
    length = getattr(state, "length", None)
    if not (isinstance(state, tuple) and isinstance(length, Tensor)):
        raise ShapeError(f"{wanted}, got {type(state).__name__}")
    if torch.compiler.is_compiling():
        if length.shape[0] != x.shape[0]:
            raise ShapeError(f"{who}: state has batch {length.shape[0]}, x has batch {x.shape[0]}")
        return
    if not all(isinstance(field, Tensor) and is_dense(field) for field in state):
        raise ShapeError(f"{wanted}: one of its fields is not a dense tensor")
    found = length.__dict__.get(MARK)
    if found is not None:
        _check_mark(who, wanted, found, owner)
    _check_place(who, state, x)
    if found is not None:
        if found[1] != _shapes(state):
            raise ShapeError(f"{wanted}, and its fields were changed: {_spelled(state)}")
        return
    if not any(_alike(state, other) for other in fresh()):
        raise ShapeError(f"{wanted}, got one of other fields or widths: {_spelled(state)}")


def _is_as_marked(state: Any, x: Tensor, owner: Identity) -> bool:
    """True if these are the very tensors that the mixer made, for as many rows as x; a decoding step pays for little else."""
    length = getattr(state, "length", None)
    if torch.compiler.is_compiling() or not isinstance(length, Tensor):
        return False
    found = length.__dict__.get(MARK)
    if found is None or found[0] != owner or found[3] != tuple(map(id, state)):
        return False
    first = state[0]
    return first.dtype == x.dtype and first.shape[:1] == x.shape[:1] and first.device == x.device


def _check_mark(who: str, wanted: str, found: Any, owner: Identity) -> None:
    theirs, _, kept, _ = found
    if theirs != owner:
        old, new = dict(theirs), dict(owner)
        if old["mixer"] != new["mixer"]:
            raise ShapeError(f"{wanted}, got one of {old['mixer']}")
        name = next(key for key in {**new, **old} if new.get(key) != old.get(key))
        raise ShapeError(
            f"{wanted}, got one of a mixer with {name}={old.get(name)}, and this one has {new.get(name)}"
        )
    if kept == "given away":
        raise ShapeError(
            f"{who}: this state was given away with donate=True, and its storage may hold later tokens. Go on from "
            "the state that extend returned, or leave donate out."
        )


def _check_place(who: str, state: Any, x: Tensor) -> None:
    casts = torch.is_autocast_enabled(x.device.type)
    for name, field in zip(state._fields, state, strict=True):
        rows = field.shape[0] if field.dim() else "none"
        if rows != x.shape[0]:
            raise ShapeError(f"{who}: state has batch {rows} in {name}, x has batch {x.shape[0]}")
        if field.device != x.device:
            raise ShapeError(
                f"{who}: state.{name} is on {field.device}, x on {x.device}. Move one of them."
            )
        if field.is_floating_point() and field.dtype != x.dtype and not casts:
            raise ShapeError(
                f"{who}: state.{name} has dtype {field.dtype}, x {x.dtype}. Convert one, or begin a new state."
            )


def _shapes(state: Any) -> tuple[Any, ...]:
    """Shapes without the batch, and types of what is no floating number: those may be converted."""
    return tuple(
        (tuple(field.shape[1:]), None if field.is_floating_point() else str(field.dtype))
        for field in state
    )


def _alike(state: Any, other: Any) -> bool:
    """Same fields, and in floating ones the same width and, before a time axis, the same number of heads."""
    if type(state) is not type(other):
        return False
    for ours, theirs in zip(state, other, strict=True):
        floating = ours.is_floating_point() and theirs.is_floating_point()
        if ours.dim() != theirs.dim() or not (floating or ours.dtype == theirs.dtype):
            return False
        if floating and ours.dim() > 1 and ours.shape[-1] != theirs.shape[-1]:
            return False
        if ours.dim() > 3 and ours.shape[1] != theirs.shape[1]:
            return False
    return True


def _spelled(state: Any) -> str:
    fields = zip(getattr(state, "_fields", ()), state, strict=False)
    return ", ".join(f"{name} {list(field.shape)}" for name, field in fields)
