"""Streaming states: frozen dataclasses of tensors, batch first, that record the mixer that made them.

    @as_state
    class State(Streamed):
        k: Float[Tensor, "B H C K"]
        length: Int[Tensor, "B"]        # valid tokens so far: every state has it

A state is a pytree of its tensors, its owner static. `dataclasses.replace` changes fields, `torch.save` and `torch.load` keep it whole.
"""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, ClassVar, TypeVar, dataclass_transform

import torch
from jaxtyping import Int
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling
from torch.serialization import add_safe_globals
from torch.utils import _pytree as pytree

from regard.core.errors import ShapeError, UnsupportedError, outline, shown
from regard.core.mask import INTEGERS, OPEN
from regard.core.memory import require_memory
from regard.core.options import Options
from regard.core.request import (
    clear,
    compaction,
    first_parameter,
    one_row,
    one_row_mask,
    permute,
    with_facts,
)
from regard.core.shapes import is_dense

HARMLESS = {"impl", "dropout"}
"""Options that change nothing that is in a state."""

LARGE = 1 << 16
"""Rows times tokens of a new state from which on its size is compared with the free memory."""

Owner = tuple[tuple[str, str], ...]
"""("mixer", name), and the name and value of each option that a state depends on."""

Facts = tuple[Owner, bool] | None
"""A state's owner, and whether it was given away: what a pytree keeps beside the tensors."""

AnyState = TypeVar("AnyState")


@dataclass
class Origin:
    """What the mixer recorded when it made a state. Copies by `dataclasses.replace` share it, as they share storage."""

    owner: Owner
    shapes: Any = None  # None: the fields were made outside of the mixer
    given_away: bool = False  # with donate=True, so that the storage may hold later tokens


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Streamed:
    """Base of states; `as_state` makes the subclass a dataclass and a pytree."""

    __match_args__: ClassVar[tuple[str, ...]]  # the subclass's fields, which are tensors or states
    sums: ClassVar[tuple[str, ...]] = ()
    """The fields that are float32 at least, of models in 16 bits too, since a sum of 16 bits stops growing."""
    origin: Origin | None = None
    document: Int[Tensor, "B"] | None = (
        None  # number of the document of each row's last token, where those have numbers
    )
    most: int | None = field(init=False, default=None)
    """No row has more tokens; set by the mixer alone and lost in copies, so that it holds for these very fields."""

    def __repr__(self) -> str:
        fields = {name: getattr(self, name) for name in self.__match_args__}
        return f"{type(self).__name__}({outline(fields)})"


@dataclass_transform(frozen_default=True)
def as_state(cls: type[AnyState]) -> type[AnyState]:
    """Returns the subclass of Streamed as a frozen dataclass, a pytree, and one of the classes that `torch.load` takes."""
    made: Any = dataclass(frozen=True, eq=False, repr=False)(cls)
    names = made.__match_args__  # all fields but those of Streamed

    def flatten(state: Any) -> tuple[list, Facts]:
        values = [getattr(state, name) for name in names]
        if state.document is not None:
            values.append(state.document)
        return values, state.origin and (state.origin.owner, state.origin.given_away)

    def flatten_with_keys(state: Any) -> tuple[list, Facts]:
        values, facts = flatten(state)
        keys = map(pytree.GetAttrKey, (*names, "document"))
        return list(zip(keys, values, strict=False)), facts

    def unflatten(values: Any, facts: Facts) -> Any:
        fields = values[: len(names)]
        document = values[len(names) :]
        origin = facts and Origin(facts[0], given_away=facts[1])
        return made(*fields, origin=origin, document=document[0] if document else None)

    pytree.register_pytree_node(
        made,
        flatten,
        unflatten,
        serialized_type_name=f"{cls.__module__}.{cls.__qualname__}",
        to_dumpable_context=lambda facts: facts,
        from_dumpable_context=lambda facts: facts and (tuple(map(tuple, facts[0])), facts[1]),
        flatten_with_keys_fn=flatten_with_keys,
    )
    add_safe_globals([made, Origin])
    return made


def owner_of(name: str, options: Options) -> Owner:
    """What a mixer must share with the mixer that made a state."""
    told = ((key, _told(value)) for key, value in options.items() if key not in HARMLESS)
    return (("mixer", name), *told)


def _told(value: Any) -> str:
    """The value as messages show it, and a hash of what they leave out; a function by its name, which is the same in each process."""
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    short = whole = shown(value)
    with suppress(Exception):  # a value whose own repr is broken
        whole = repr(value)
    return short if whole == short else f"{short} ({sha256(whole.encode()).hexdigest()[:8]})"


def stamped(state: AnyState, owner: Owner, most: int | None) -> AnyState:
    """The same fields as a state that the mixer made just now; where it is compiled, as one that nothing is known of."""
    if is_compiling():
        return replace(state, origin=None)  # type: ignore[type-var]
    assert isinstance(state, Streamed), f"{owner[0][1]}: its state must be a Streamed, as_state"
    return with_facts(state, origin=Origin(owner, _shapes(state)), most=most)


def bounded(state: AnyState, most: int | None) -> AnyState:
    """The same state with a bound of its length that is known."""
    return state if most is None or is_compiling() else with_facts(state, most=most)


def longest(length: Int[Tensor, "B"]) -> int | None:
    """The largest length, read from the device; None where there is nothing to read."""
    if is_compiling() or length.is_meta:
        return None
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return None
    return max(length.tolist(), default=0)


def new_state(
    mixer: Any, batch_size: int, max_len: int | None, context: Tensor | None, valid: Tensor | None
) -> Any:
    """The state before the first token. Raises OptionError where it does not fit in memory."""
    make, rows = mixer._initial_state, batch_size
    if rows * (max_len or 1) > LARGE and context is None:
        small, more = (make(1, tokens, None, None) for tokens in (64, 128))
        size = _bytes(small) + (_bytes(more) - _bytes(small)) * (max_len or 64) // 64
        device = small.length.device
        require_memory(mixer.name, "its state", rows * size, device, "Choose smaller sizes.")
    if rows == 0 and context is not None:
        valid = one_row_mask(mixer, OPEN, context).valid
        context = one_row(context)
    state = make(rows or 1, max_len, context, valid)
    return stamped(state if rows else _no_rows(state), mixer._owner, 0)


def extended(
    mixer: Any, x: Tensor, state: Any, valid: Tensor | None, donate: bool
) -> tuple[Tensor, Any]:
    """`mixer._extend` of compact rows, and of one row in the place of none; lengths are read only where no bound is known."""
    N, most = x.shape[1], None
    if not is_compiling():
        if state.most is None:
            state = bounded(state, longest(state.length))
        most = None if state.most is None else state.most + N
    if not mixer.capabilities.any_length and mixer.max_len is not None:
        if most is None or most > mixer.max_len:
            added = N if valid is None else valid.sum(1)
            most = int((state.length + added).max()) if len(state.length) else N
            mixer._check_length("state length + new tokens", most)
    if donate and state.origin is not None and not is_compiling():
        state.origin.given_away = True
    if x.shape[0] == 0:
        row = one_row_mask(mixer, OPEN, x)
        # of the same shapes; its sums are one, since some are divided by
        stand_in = pytree.tree_map(lambda z: one_row(z, int(z.is_floating_point())), state)
        y, after = mixer._extend(one_row(x), stand_in, row.valid, donate)
        y, after = y[:0], _no_rows(after)
    elif valid is None:
        y, after = mixer._extend(x, state, None, donate)
    else:
        order = compaction(valid)
        y, after = mixer._extend(order.of(x), state, order.valid, donate)
        y = permute(clear(y, order.valid), order.target)
    after = stamped(after, mixer._owner, most)
    return y, after if state.document is None else with_facts(after, document=state.document)


def _no_rows(state: Any) -> Any:
    return pytree.tree_map(lambda z: z[:0], state)


def _bytes(state: Any) -> int:
    return sum(z.nbytes for z in pytree.tree_leaves(state))


def check_state(mixer: Any, state: Any, x: Tensor) -> None:
    """Raise ShapeError unless the state is this mixer's, fits x and was not given away."""
    wanted = f"{mixer.name}: state must come from initial_state or extend of this mixer"
    length = getattr(state, "length", None)
    if not (isinstance(state, Streamed) and isinstance(length, Tensor)):
        raise ShapeError(f"{wanted}, got {type(state).__name__}")
    if is_compiling():
        if length.shape[0] != x.shape[0]:
            raise ShapeError(
                f"{mixer.name}: state has batch {length.shape[0]}, x has batch {x.shape[0]}"
            )
        return
    origin = state.origin
    if origin is not None and (origin.owner != mixer._owner or origin.given_away):
        raise ShapeError(refusal(mixer.name, wanted, origin, mixer._owner))
    first = getattr(state, state.__match_args__[0])
    if state.most is not None and isinstance(first, Tensor):  # the very fields that the mixer made
        fits = first.dtype in _types(state.__match_args__[0] in state.sums, x)
        if fits and first.shape[0] == x.shape[0] and first.device == x.device:
            return
    _check_fields(mixer.name, wanted, state, x)
    if origin is not None and origin.shapes is not None:
        if origin.shapes != _shapes(state):
            raise ShapeError(f"{wanted}, and its fields were changed: {outline(tensors(state))}")
    elif _widths(state) not in map(_widths, _new_ones(mixer)):
        raise ShapeError(f"{wanted}, got one of other fields or widths: {outline(tensors(state))}")


def _new_ones(mixer: Any) -> list:
    """A new state of each kind: without a context and, where that is declared, with one."""
    states = [mixer._initial_state(1, None, None, None)]
    weight = first_parameter(mixer)
    if mixer.capabilities.cross and weight is not None:
        context = torch.zeros(1, 1, mixer.dim, dtype=weight.dtype, device=weight.device)
        with suppress(UnsupportedError):  # it may take a context in whole requests alone
            states.append(mixer._initial_state(1, None, context, None))
    return states


def refusal(who: str, wanted: str, origin: Origin, owner: Owner) -> str:
    if origin.owner == owner:
        return (
            f"{who}: this state was given away with donate=True, and its storage may hold later tokens. Go on from "
            "the state that extend returned, or leave donate out."
        )
    old, new = dict(origin.owner), dict(owner)
    if old["mixer"] != new["mixer"]:
        return f"{wanted}, got one of {old['mixer']}"
    name = next(key for key in new | old if new.get(key) != old.get(key))
    return f"{wanted}, got one of a mixer with {name}={old.get(name)}, and this one has {new.get(name)}"


def _types(is_sum: bool, x: Tensor) -> tuple[torch.dtype, ...]:
    """The types that a floating field may have: that of the tokens, and for a sum float32 at least."""
    return (x.dtype, torch.promote_types(x.dtype, torch.float32)) if is_sum else (x.dtype,)


def sum_names(state: Streamed) -> set[str]:
    """The state's `sums`, and those of states in a tuple, by the names of `tensors`."""
    found = set(state.sums)
    for name in state.__match_args__:
        parts = getattr(state, name)
        for i, part in enumerate(parts if isinstance(parts, tuple) else ()):
            if isinstance(part, Streamed):
                found |= {f"{name}[{i}].{one}" for one in sum_names(part)}
    return found


def _check_fields(who: str, wanted: str, state: Streamed, x: Tensor) -> None:
    z, batch = state.document, x.shape[:1]
    if z is not None and not (
        is_dense(z) and z.dtype in INTEGERS and z.shape == batch and z.device == x.device
    ):
        raise ShapeError(
            f"{who}: state.document must be integers {list(batch)} on {x.device}, got {shown(z)}"
        )
    casts = not x.is_meta and torch.is_autocast_enabled(x.device.type)
    sums = sum_names(state)
    for name, value in tensors(state).items():
        if not is_dense(value):
            raise ShapeError(f"{wanted}: one of its fields is not a dense tensor")
        rows = value.shape[0] if value.ndim else "none"
        if rows != x.shape[0]:
            raise ShapeError(f"{who}: state has batch {rows} in {name}, x has batch {x.shape[0]}")
        if value.device != x.device:
            raise ShapeError(
                f"{who}: state.{name} is on {value.device}, x on {x.device}. Move one of them."
            )
        if value.is_floating_point() and not (casts or value.dtype in _types(name in sums, x)):
            raise ShapeError(
                f"{who}: state.{name} has dtype {value.dtype}, x {x.dtype}. Convert one, or begin a new state."
            )


def tensors(state: Any) -> dict[str, Tensor]:
    """The fields by name, also those of states in a tuple: `parts[0].k`."""
    leaves, _ = pytree.tree_flatten_with_path(with_facts(state, document=None))
    return {pytree.keystr(path).removeprefix("."): leaf for path, leaf in leaves}


def _shapes(state: Any) -> list:
    """Shapes without the batch, and types of what is no floating number: those may be converted."""
    leaves = pytree.tree_leaves(with_facts(state, document=None))
    return [(z.shape[1:], z.is_floating_point() or z.dtype) for z in leaves]


def _widths(state: Any) -> tuple:
    """The class, and of each field its axes and type, the width of floating ones, and the heads before a time axis."""
    fields = []
    for name, z in tensors(state).items():
        floating = z.is_floating_point()
        heads = z.shape[1] if z.ndim > 3 else None
        fields.append((name, z.ndim, floating or z.dtype, floating and z.shape[1:][-1:], heads))
    return type(state), fields
