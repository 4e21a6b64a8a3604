"""Mixer: the one interface. x [B T D] -> y [B T D], with masks, context and streaming; requests are checked here."""

import inspect
import sys
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, final

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from regard.core.capabilities import Capabilities, No
from regard.core.compaction import Compaction, compaction, permute
from regard.core.empty_batch import no_rows, one_row, one_row_mask, one_row_state
from regard.core.errors import OptionError, ShapeError, UnsupportedError
from regard.core.mask import OPEN, Mask
from regard.core.memory import within_memory
from regard.core.options import Recorded
from regard.core.outline import prints_shapes
from regard.core.ownership import (
    Identity,
    check_state,
    identity,
    mark,
    mark_given_away,
    most_tokens,
    note_most,
)
from regard.core.shapes import (
    check_batch_size,
    check_flag,
    check_place,
    check_positive,
    check_tokens,
    first_parameter,
)
from regard.core.units import UNITS
from regard.core.wrong_call import check_arguments


class State(Protocol):
    """A NamedTuple of tensors, batch first, on the module's device; `length` counts the valid tokens so far."""

    @property
    def length(self) -> Int[Tensor, "B"]: ...

    def _replace(self, **fields: Tensor) -> "State": ...


@prints_shapes
class Observation(NamedTuple):
    """The tensors that one forward used, as far as the mechanism has them."""

    q: Float[Tensor, "B H T K"] | None = None
    k: Float[Tensor, "B G S K"] | None = None
    v: Float[Tensor, "B G S V"] | None = None
    weights: Float[Tensor, "B H T S"] | None = None
    heads: Float[Tensor, "B H T V"] | None = None


NAMED = 5
"""Mixers that an error names as those that can."""
UPDATES = 10
"""Updates of a mixer's parameters without `after_step` of which it does not warn."""


class Mixer(Recorded):
    """Base of every mechanism. A mechanism writes `mix` and, where declared, `_initial_state`, `_extend`, `_observe`.

    What those methods receive has been checked, and is compact: valid tokens come first in every row, invalid
    ones are zero, and `mask.valid` describes the compact row. What they return at invalid positions is ignored.
    """

    name: ClassVar[str]
    family: ClassVar[str]  # kernel family; colours the charts
    paper: ClassVar[str]  # authors, year, arXiv id
    capabilities: (
        Capabilities  # class value: the default options'; the instance's value is authoritative
    )
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
        {}
    )  # every law runs over all of them
    limits: ClassVar[Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]] = MappingProxyType(
        {}
    )
    """Entries that this one equals at a limit: name -> (own options, the other's options); parameters are copied."""

    delay: int = 0
    """Lag, in tokens, of an incomplete slot: causal queries may not see as many of the latest tokens."""

    beside_heads: str | None = None
    """The part that reads tokens without passing through `heads`: q, k and v alone are then not enough for this mixer."""

    _updates: tuple[int | None, int] = (None, 0)  # version of a parameter, updates since after_step
    _identity: Identity  # name and options that the states carry

    def __new__(cls, *args: Any, **kwargs: Any):
        mixer = super().__new__(cls, *args, **kwargs)
        if args or kwargs:
            object.__setattr__(mixer, "_identity", identity(cls.name, mixer.options))
        return mixer

    def __init__(self, dim: int, *, max_len: int | None = None):
        super().__init__()
        for fact in ("name", "capabilities"):
            if not hasattr(self, fact):
                raise OptionError(f"{type(self).__name__} has no {fact}: declare it in the class")
        self.dim = dim
        self.max_len = max_len

    def declare(self, **changes: Any) -> None:
        """Declare where this instance differs from its class: `self.declare(causal=No("..."))`."""
        self.capabilities = replace(self.capabilities, **changes)

    # ------------------------------------------------------------------ for callers

    def require(self, what: str) -> None:
        """Raise UnsupportedError, with the declared reason, if the capability of this name is a `No`."""
        answer = getattr(self.capabilities, what)
        if isinstance(answer, No):
            raise UnsupportedError(
                f"{self.name} does not support {what}: {answer.reason}.{_instead(what)}"
            )

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        own = vars(cls).get("after_step")
        if own is not None:
            cls.after_step = _noted(own)  # type: ignore[assignment,method-assign]
        home = cls.__module__.rpartition(".")[2].rstrip("_")
        if vars(cls).get("__doc__") is None and vars(cls).get("name") == home:
            cls.__doc__ = _told(cls)

    @final  # type: ignore[misc]
    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        context: Float[Tensor, "B S D"] | None = None,
        mask: Mask = OPEN,
    ) -> Float[Tensor, "B T D"]:
        """Mix tokens. Outputs at invalid positions, and of queries that may see nothing, are exactly zero.

        Raises ShapeError for what does not fit and UnsupportedError for what is declared as a `No`.
        """
        self._check_request(x, context, mask)
        if self.training and not torch.compiler.is_compiling() and self.changes_after_step:
            self._notice_update()
        request = self._compacted(x, context, mask)
        return request.restore_output(self.mix(request.x, request.context, request.mask))

    if TYPE_CHECKING:
        __call__ = forward
    else:

        def __call__(self, *args, **kwargs):
            """`forward`, with torch's hooks. Raises OptionError, UnknownNameError for arguments that it does not take."""
            try:
                return super().__call__(*args, **kwargs)
            except TypeError:
                check_arguments(self.name, Mixer.forward.__get__(self), args, kwargs)
                raise

    @final
    def initial_state(
        self,
        batch_size: int,
        *,
        max_len: int | None = None,
        context: Float[Tensor, "B S D"] | None = None,
        valid: Bool[Tensor, "B S"] | None = None,
    ) -> Any:
        """The state before the first token. `max_len` reserves room; `valid` belongs to `context`.

        Raises UnsupportedError where the mechanism does not stream, or not over a context, ShapeError for sizes that do not fit.
        """
        self.require("streaming")
        check_batch_size(batch_size)
        if max_len is not None:
            check_positive(max_len=max_len)
            self._check_length("max_len", max_len)
        if context is None:
            if valid is not None:
                raise ShapeError(f"{self.name}: valid belongs to context, and no context was given")
            return self._new_state(batch_size, max_len, None, None)
        self.require("cross")
        self._check_tokens("context", context)
        B, S, _ = context.shape
        if batch_size != B:
            raise ShapeError(f"{self.name}: context has batch {B}, batch_size is {batch_size}")
        self._check_length("context length", S)
        Mask(valid=valid).check(self.name, B, S, S, device=context.device)
        if valid is not None:
            self.require("padding")
            order = compaction(valid)
            context, valid = _clear(permute(context, order.source), order.valid), order.valid
        return self._new_state(batch_size, max_len, context, valid)

    def _new_state(
        self, batch_size: int, max_len: int | None, context: Tensor | None, valid: Tensor | None
    ) -> Any:
        with within_memory(self.name):
            state = self._state_of(batch_size, max_len, context, valid)
        if not torch.compiler.is_compiling():
            prints_shapes(type(state))
        mark(state, self._identity)
        note_most(state.length, 0)
        return state

    def _state_of(
        self, batch_size: int, max_len: int | None, context: Tensor | None, valid: Tensor | None
    ) -> Any:
        if batch_size > 0:
            return self._initial_state(batch_size, max_len, context, valid)
        if context is not None:
            valid = one_row_mask(OPEN, context, padding=bool(self.capabilities.padding)).valid
            context = one_row(context)
        return no_rows(self._initial_state(1, max_len, context, valid))

    def _states_of_one_row(self) -> list[Any]:
        """A new state of each kind: without a context and, where that is declared, with one."""
        states, weight = [self._initial_state(1, None, None, None)], first_parameter(self)
        if self.capabilities.cross and weight is not None:
            context = torch.zeros(1, 1, self.dim, dtype=weight.dtype, device=weight.device)
            with suppress(UnsupportedError):  # it may take a context in whole requests alone
                states.append(self._initial_state(1, None, context, None))
        return states

    @final
    def extend(
        self,
        x: Float[Tensor, "B N D"],
        state: Any,
        *,
        valid: Bool[Tensor, "B N"] | None = None,
        donate: bool = False,
    ) -> tuple[Float[Tensor, "B N D"], Any]:
        """Outputs for the next N >= 1 tokens, and the state after them.

        Where `capabilities.streaming` is "exact", any chunking gives what causal `forward` gives. Where it is "segment",
        one call does, and later calls see of earlier ones what the mechanism keeps of them.

        Tokens that are not `valid` are as if absent. `donate=True` lets the new state reuse the storage of the
        one passed in, which is refused if it is used again. Raises ShapeError for the state of another mixer.
        """
        self.require("streaming")
        self._check_tokens("x", x)
        B, N, _ = x.shape
        check_flag(donate=donate)
        check_state(self.name, state, x, self._identity, self._states_of_one_row)
        if valid is not None:
            Mask(valid=valid).check(self.name, B, N, N, device=x.device)
            self.require("padding")
        most = self._most_after(state.length, valid, N)
        if donate:
            mark_given_away(state)
        y, after = self._extended(x, state, valid, donate)
        mark(after, self._identity)
        note_most(after.length, most)
        return y, after

    def _most_after(self, length: Tensor, valid: Tensor | None, N: int) -> int | None:
        """A bound of the length after N more tokens; lengths are read only where the known bound is too large."""
        if self.capabilities.any_length or self.max_len is None:
            return None
        known = most_tokens(length)
        if known is not None and known + N <= self.max_len:
            return known + N
        added = N if valid is None else valid.sum(1)
        longest = int((length + added).max()) if len(length) else N
        self._check_length("state length + new tokens", longest)
        return longest

    def extend_normed(
        self,
        x: Float[Tensor, "B N D"],
        norm: nn.Module,
        state: Any,
        *,
        valid: Bool[Tensor, "B N"] | None = None,
        donate: bool = False,
    ) -> tuple[Float[Tensor, "B N D"], Any]:
        """`extend` of norm(x), for a layer that normalises its input; a state that keeps inputs keeps x itself."""
        return self.extend(norm(x), state, valid=valid, donate=donate)

    def _extended(
        self, x: Tensor, state: Any, valid: Tensor | None, donate: bool
    ) -> tuple[Tensor, Any]:
        """`_extend` of compact rows, and of one row in the place of none."""
        if x.shape[0] == 0:
            row = one_row_mask(OPEN, x, padding=bool(self.capabilities.padding))
            y, after = self._extend(one_row(x), one_row_state(state), row.valid, donate)
            return y[:0], no_rows(after)
        if valid is None:
            return self._extend(x, state, None, donate)
        order = compaction(valid)
        x = _clear(permute(x, order.source), order.valid)
        y, after = self._extend(x, state, order.valid, donate)
        return permute(_clear(y, order.valid), order.target), after

    @final
    def attention_map(
        self,
        x: Float[Tensor, "B T D"],
        *,
        context: Float[Tensor, "B S D"] | None = None,
        mask: Mask = OPEN,
    ) -> Float[Tensor, "B H T S"]:
        """The weights with which `forward` mixes; zero where a token is invalid or a pair is not allowed."""
        self.require("attention_map")
        weights = self.observe(x, context=context, mask=mask).weights
        assert weights is not None, (
            f"{self.name} declares attention_map and its _observe gives no weights"
        )
        return weights

    @final
    def observe(
        self,
        x: Float[Tensor, "B T D"],
        *,
        context: Float[Tensor, "B S D"] | None = None,
        mask: Mask = OPEN,
        weights: bool = True,
    ) -> Observation:
        """Queries, keys, values, weights and head outputs of one forward, as far as they exist.

        weights=False gives values and head outputs alone: where the mixer never forms weights, nothing of size [T S] is made.
        """
        check_flag(weights=weights)
        self._check_request(x, context, mask)
        request = self._compacted(x, context, mask)
        given = request.x, request.context, request.mask
        found = self._observe(*given) if weights else self._observe_heads(*given)
        if weights and found.heads is None:
            found = found._replace(heads=self._observe_heads(*given).heads)
        return request.restore_observation(found)

    @final
    def plan(
        self,
        x: Float[Tensor, "B T D"],
        *,
        context: Float[Tensor, "B S D"] | None = None,
        mask: Mask = OPEN,
    ) -> dict[str, Tensor] | None:
        """Random or data-dependent structure (hashes, assignments, blocks) that `forward` uses, for oracles.

        Positions in it are compact: those among the valid tokens of the row.
        """
        self._check_request(x, context, mask)
        request = self._compacted(x, context, mask)
        return self._plan(request.x, request.context, request.mask)

    def after_step(self) -> None:
        """Called once after each optimiser step (centroids, feature redraw). Does nothing by default.

        `regard.nn.after_step(model, group)` calls it for a whole model, and first adds up what processes counted; alone,
        it communicates nothing.
        """

    @property
    def changes_after_step(self) -> bool:
        """True if `after_step` does anything with these options."""
        return type(self).after_step is not Mixer.after_step

    def _notice_update(self) -> None:
        """Count updates of the parameters since the last `after_step`, and warn of many without one, once for each model."""
        weight = first_parameter(self)
        if weight is None or weight.is_inference() or weight._version == self._updates[0]:
            return
        self._updates = (weight._version, self._updates[1] + 1)
        if self._updates[1] == UPDATES + 1:
            for mixer in _around(self):
                mixer._updates = (mixer._updates[0], UPDATES + 1)
            warnings.warn(
                f"{self.name} was trained for {UPDATES} updates without after_step(), where it changes what it attends "
                "with. Call regard.nn.after_step(model) after each optimiser step, or "
                "regard.nn.call_after_step(optimizer, model) once.",
                stacklevel=3,
            )

    # ------------------------------------------------------------------ for mechanisms

    @abstractmethod
    def mix(
        self, x: Float[Tensor, "B T D"], context: Float[Tensor, "B S D"] | None, mask: Mask
    ) -> Tensor:
        """The mechanism itself. The request fits its capabilities; raises UnsupportedError for what these cannot say."""

    def _initial_state(
        self, batch_size: int, max_len: int | None, context: Tensor | None, valid: Tensor | None
    ) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__} declares streaming and does not define _initial_state"
        )

    def _extend(
        self, x: Tensor, state: Any, valid: Tensor | None, donate: bool
    ) -> tuple[Tensor, Any]:
        raise NotImplementedError(
            f"{type(self).__name__} declares streaming and does not define _extend"
        )

    def _observe(self, x: Tensor, context: Tensor | None, mask: Mask) -> Observation:
        """What there is of q, k, v and weights; head outputs too where `_observe_heads` does not give them."""
        return Observation()

    def _observe_heads(self, x: Tensor, context: Tensor | None, mask: Mask) -> Observation:
        """Values and head outputs, without the weights where the mechanism forms none."""
        whole = self._observe(x, context, mask)
        return Observation(v=whole.v, heads=whole.heads)

    def _plan(self, x: Tensor, context: Tensor | None, mask: Mask) -> dict[str, Tensor] | None:
        return None

    # ------------------------------------------------------------------ the checks

    def _compacted(self, x: Tensor, context: Tensor | None, mask: Mask) -> "_CompactRequest":
        if x.shape[0] > 0:
            return _compacted(x, context, mask)
        keys, padding = x if context is None else context, bool(self.capabilities.padding)
        row = one_row_mask(mask, keys, padding=padding)
        request = _compacted(one_row(x), None if context is None else one_row(context), row)
        return request._replace(empty=True)

    def _check_tokens(self, name: str, x: object) -> None:
        check_tokens(self.name, name, x, self.dim)
        assert isinstance(x, Tensor)
        check_place(self.name, name, x, first_parameter(self))

    def _check_length(self, name: str, length: int) -> None:
        answer = self.capabilities.any_length
        if isinstance(answer, No) and self.max_len is not None and length > self.max_len:
            raise ShapeError(
                f"{self.name}: {name} ({length}) exceeds max_len ({self.max_len}): {answer.reason}"
            )

    def _check_request(self, x: object, context: object | None, mask: object) -> None:
        if not isinstance(mask, Mask):
            raise ShapeError(
                f"{self.name}: mask must be a regard.Mask, got {type(mask).__name__}. Mask(valid=...)?"
            )
        if mask.compact or mask.shift is not None:
            raise ShapeError(
                f"{self.name}: mask.compact and mask.shift are filled in by the mixer. Leave them out: valid says which "
                "tokens there are, on any side."
            )
        self._check_tokens("x", x)
        assert isinstance(x, Tensor)
        B, T, _ = x.shape
        S = T
        self._check_length("length", T)
        if context is not None:
            self.require("cross")
            self._check_tokens("context", context)
            assert isinstance(context, Tensor)
            if context.shape[0] != B:
                raise ShapeError(
                    f"{self.name}: context has batch {context.shape[0]}, x has batch {B}"
                )
            S = context.shape[1]
            self._check_length("context length", S)
        if mask.causal:
            self.require("causal")
        else:
            self.require("bidirectional")
        if mask.valid is not None:
            self.require("padding")
        if mask.pairwise is not None:
            self.require("pairwise")
        if mask.global_tokens is not None:
            self.require("global_tokens")
            if context is not None:
                raise ShapeError(
                    f"{self.name}: global_tokens are tokens of x, and a context was given. Leave one out."
                )
        mask.check(self.name, B, T, S, getattr(self, "num_heads", None), device=x.device)


def _told(cls: type[Mixer]) -> str | None:
    """The beginning of `help(cls)` where a file holds one mechanism: the file's text, with the equation, and the options."""
    text = inspect.getdoc(sys.modules[cls.__module__])
    options = inspect.signature(cls).parameters.values()
    bare = [str(option.replace(annotation=option.empty)) for option in options]
    meant = [f"\n    {o.name}: {UNITS[o.name]}" for o in options if o.name in UNITS]
    return text and f"{text}\n\nOptions: {', '.join(bare)}.\n{''.join(meant)}"


def _noted(own: Callable[[Any], None]) -> Callable[[Any], None]:
    """A mechanism's `after_step`, which begins the count of updates anew."""

    @wraps(own)
    def after_step(self: Any) -> None:
        self._updates = (self._updates[0], 0)
        own(self)

    return after_step


def _around(mixer: Mixer) -> list[Mixer]:
    """The mixers of the model that this one is in: the outermost module whose method led to this call."""
    found, frame = [mixer], sys._getframe().f_back
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, nn.Module):
            mixers = [module for module in caller.modules() if isinstance(module, Mixer)]
            found = mixers if mixer in mixers else found
        frame = frame.f_back
    return found


def _instead(what: str) -> str:
    """A few of the library's mixers that can, for the end of an error message."""
    ours = [cls for cls in _mechanisms(Mixer) if cls.__module__.startswith("regard.mixers.")]
    able = sorted(cls.name for cls in ours if getattr(cls.capabilities, what))
    more = f" and {len(able) - NAMED} more" if len(able) > NAMED else ""
    return f" Mixers that do: {', '.join(able[:NAMED])}{more}." if able else ""


def _mechanisms(base: type) -> Iterator[type[Mixer]]:
    """Subclasses with a name, at any depth."""
    subclasses: Sequence[type[Mixer]] = base.__subclasses__()
    for cls in subclasses:
        if "name" in vars(cls):
            yield cls
        yield from _mechanisms(cls)


def _clear(x: Shaped[Tensor, "B S D"], valid: Bool[Tensor, "B S"]) -> Shaped[Tensor, "B S D"]:
    return torch.where(valid[..., None], x, x.new_zeros(()))


class _CompactRequest(NamedTuple):
    """A request with every row's valid tokens first, and the permutations back to the caller's order."""

    x: Tensor
    context: Tensor | None
    mask: Mask
    queries: Compaction | None  # how the rows of x were moved
    keys: Compaction | None  # how the rows of x, or of the context, were moved
    answered: Tensor | None  # [B T]: queries that are valid and see at least one key
    empty: bool = False  # the batch has no rows, and this one is computed in their place

    def restore_output(self, y: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        if self.empty:
            return y[:0]
        if self.answered is not None:
            y = _clear(y, self.answered)
        return y if self.queries is None else permute(y, self.queries.target)

    def restore_observation(self, found: Observation) -> Observation:
        if self.empty:
            return Observation(*(None if z is None else z[:0] for z in found))
        return Observation(
            q=self._tokens(found.q, self.queries),
            k=self._tokens(found.k, self.keys),
            v=self._tokens(found.v, self.keys),
            weights=self._weights(found.weights),
            heads=self._tokens(found.heads, self.queries),
        )

    def _tokens(self, z: Tensor | None, order: Compaction | None) -> Tensor | None:
        if z is None or order is None:
            return z
        z = torch.where(order.valid[:, None, :, None], z, z.new_zeros(()))
        return permute(z, order.target, dim=2)

    def _weights(self, weights: Tensor | None) -> Tensor | None:
        if weights is None:
            return None
        if self.answered is not None:
            weights = torch.where(self.answered[:, None, :, None], weights, weights.new_zeros(()))
        weights = self._tokens(weights, self.queries)
        if self.keys is not None:
            assert weights is not None
            prefix, tokens = weights.tensor_split([-self.keys.target.shape[1]], dim=3)
            moved = self._tokens(tokens.transpose(2, 3), self.keys)
            assert moved is not None
            weights = torch.cat([prefix, moved.transpose(2, 3)], dim=3)
        return weights


def _compacted(x: Tensor, context: Tensor | None, mask: Mask) -> _CompactRequest:
    T, S = x.shape[1], x.shape[1] if context is None else context.shape[1]
    queries = keys = answered = None
    if mask.valid is not None:
        keys = compaction(mask.valid)
        if context is None:
            queries = keys
            x = _clear(permute(x, keys.source), keys.valid)
        else:
            context = _clear(permute(context, keys.source), keys.valid)
        mask = _compact_mask(mask, queries, keys, T, cross=context is not None)
    if context is None:
        answered = mask.valid
    elif mask.causal and (T > S or mask.valid is not None):
        answered = mask.last_key(T, S, x.device) >= 0
    elif mask.valid is not None:
        answered = mask.valid.any(1, keepdim=True)
    if mask.pairwise is not None:
        allowed = mask.dense(T, S, device=x.device).any(-1).any(1)
        answered = allowed if answered is None else answered & allowed
    if answered is not None:
        answered = answered.expand(x.shape[0], T)
    return _CompactRequest(x, context, mask, queries, keys, answered)


def _compact_mask(
    mask: Mask, queries: Compaction | None, keys: Compaction, T: int, *, cross: bool
) -> Mask:
    pairwise, global_tokens = mask.pairwise, mask.global_tokens
    if pairwise is not None:
        pairwise = permute(pairwise, keys.source, dim=3)
        if queries is not None:
            pairwise = permute(pairwise, queries.source, dim=2)
    if global_tokens is not None:
        global_tokens = permute(global_tokens, keys.source) & keys.valid
    shift = keys.valid.sum(1) - T if cross and mask.causal else None
    return Mask(mask.causal, keys.valid, pairwise, global_tokens, compact=True, shift=shift)
