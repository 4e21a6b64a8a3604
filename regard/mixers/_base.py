"""Base classes: mixers that split tokens into queries, keys and values, and those whose heads make the split."""

from copy import copy
from dataclasses import replace
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core import (
    Capabilities,
    Context,
    Marks,
    Mask,
    Mixed,
    Mixer,
    No,
    Observation,
    OptionError,
    Options,
    OtherTokens,
    Positions,
    Streamed,
    TensorMap,
    Tokens,
    Values,
    as_state,
    existing,
    first_parameter,
)
from regard.functional.cache import Lengths, advance, place
from regard.functional.mixed_chunk import units
from regard.functional.rows import Impl, check_impl
from regard.nn.heads import Heads
from regard.nn.starts import unset
from regard.positions.inside import inside
from regard.positions.relative import BiasPosition

ALL = Capabilities(
    causal=True,
    pairwise=True,
    global_tokens=True,
    cross=True,
    streaming="exact",
    attention_map=True,
    positions=frozenset({"absolute"}),
    time="T^2 H K",
    memory="T D",
    state="T D",
)
"""Each mechanism replaces what it cannot do, with the reason, and what it costs."""

ONE_AXIS = No("relative positions need queries and keys on one axis")


@as_state
class ContextState(Streamed):
    kept: tuple  # what queries read of a context
    answered: Bool[Tensor, "B 1 1"]  # rows whose context has a token
    length: Lengths


class SplitMixer(Mixer):
    """y = _merge(x, _attend(*_split(x, context), mask)), q of the tokens, k and v of the context or of the same tokens.

    A mechanism writes `_split`, `_attend` and `_merge`, or `mix` in their place, and then `_mixed` where it has no `Heads`. Its
    weights are what becomes of a unit value for each key. A stream is `_start` and `_step`, and over a context `_keep` and `_read`.
    """

    operations: ClassVar[tuple[str, ...]] = ()
    """Keys of `regard.fast` that serve it: they say which `impl` there is."""

    heads: Heads

    def __init__(self, dim: int, impl: Impl = "auto", *, max_len: int | None = None):
        super().__init__(dim, max_len=max_len)
        self.impl = check_impl(self.name, impl, *self.operations)

    def mix(self, x, context, mask):
        q, k, v = self._split(x, context)
        return self._merge(x, self._attend(q, k, v, mask))

    def _mixed(self, x: Tokens, context: Context, mask: Mask, of: TensorMap | None = None) -> Mixed:
        """Outputs of the heads, for observers; of: other values, which it makes of v."""
        q, k, v = self._split(x, context)
        return self._attend(q, k, v if of is None else of(v), mask)

    def _split(
        self, x: Tensor, context: Tensor | None, at: Positions | None = None
    ) -> tuple[Any, Any, Tensor]:
        """q of the tokens at these positions (None: the first), k and v of the context, or of the same tokens."""
        raise NotImplementedError

    def _attend(
        self,
        q: Any,
        k: Any,
        v: Values,
        mask: Mask,
        query: Int[Tensor, "#b T"] | None = None,
        key: Int[Tensor, "#b S"] | None = None,
    ) -> Tensor:
        """What queries read of keys at these positions (None: the first)."""
        raise NotImplementedError

    def _merge(self, x: Tokens, mixed: Tensor) -> Float[Tensor, "B T _"]:
        raise NotImplementedError

    def _observe(self, x, context, mask):
        weights = self._mixed(x, context, mask, units) if self.capabilities.attention_map else None
        return Observation(*self._shown(x, context), weights)

    def _observe_heads(self, x, context, mask):
        return Observation(v=self._shown(x, context)[2], heads=self._mixed(x, context, mask))

    def _shown(self, x: Tensor, context: Tensor | None) -> tuple[Any, Any, Tensor]:
        """q, k and v for observers; None where there are none."""
        return self._split(x, context)

    # ------------------------------------------------------------------ streams

    @property
    def _like(self) -> Tensor:
        """What has the device and the type of a state."""
        weight = first_parameter(self)
        weight = self.heads.value.weight if weight is None else weight  # heads that are given
        return getattr(weight, "to_local", lambda: weight)()  # of tensor parallel: this rank's part

    def _initial_state(self, batch_size, max_len, context, valid):
        length = self._like.new_zeros(batch_size, dtype=torch.long)
        if context is None:
            return self._start(length, max_len)
        valid = existing(context[..., 0], valid)
        return ContextState(self._keep(context, valid), valid.any(1)[:, None, None], length)

    def _extend(self, x, state, valid, donate):
        if not isinstance(state, ContextState):
            mixed, after = self._step(x, state, valid, donate)
            return self._merge(x, mixed), after
        N, before = x.shape[1], state.length
        mixed = self._read(x, state.kept, place(before, valid, N).clamp_min(0))
        length = advance(before, valid, N)
        return self._merge(x, mixed) * state.answered, replace(state, length=length)

    def _start(self, length: Lengths, max_len: int | None) -> Any:
        """The state before the first token, with `length` of zeros."""
        raise NotImplementedError

    def _step(
        self, x: Tensor, state: Any, valid: Tensor | None, donate: bool
    ) -> tuple[Tensor, Any]:
        """What `_merge` gets for the next tokens, and the state after them."""
        raise NotImplementedError

    def _keep(self, context: OtherTokens, valid: Marks) -> tuple:
        """What every query reads of the context."""
        raise NotImplementedError

    def _read(self, x: Tensor, kept: tuple, at: Int[Tensor, "B N"]) -> Tensor:
        """What tokens at these positions read."""
        raise NotImplementedError


class HeadsMixer(SplitMixer):
    """A SplitMixer whose split and merge are those of heads, and the options of heads."""

    position: Any  # the module of the positions inside, or None
    sinks: nn.Parameter | None  # [H]: logits that join each softmax and have no value

    def __init__(
        self,
        dim: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        impl: Impl = "auto",
        position: str | None = None,
        position_options: Options | None = None,
        *,
        max_len: int | None = None,
        turned: bool = True,
        head_dim: int | None = None,
        gate: bool = False,
        sinks: bool = False,
        shared_qk: bool = False,
        repeat: bool = True,
        alike: bool = False,
        **of_heads: Any,
    ):
        """turned: a rotation turns queries and keys. The others: see `Mixer` and `Heads`."""
        super().__init__(dim, impl, max_len=max_len)
        self.num_heads = num_heads
        self.position = inside(self, num_heads, position, position_options, head_dim)
        if sinks and shared_qk:
            raise OptionError(f"{self.name} takes one of sinks and shared_qk")
        self.sinks = unset(num_heads) if sinks else None
        self.heads = Heads(
            dim,
            num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            gate=gate,
            shared_qk=shared_qk,
            repeat=repeat,
            alike=alike and not sinks and not isinstance(self.position, BiasPosition),
            position=self.position if turned else None,
            **of_heads,
        )
        if self.position is not None and self.capabilities.cross:
            self.declare(cross=ONE_AXIS, exchange=ONE_AXIS)
        if shared_qk:
            why = No("its keys are the queries of the same tokens")
            self.declare(cross=why, exchange=why)
        if gate:
            self.beside_heads = "its gate"
        if sinks:
            self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.sinks is not None:
            nn.init.zeros_(self.sinks)

    def _split(self, x, context, at=None):
        return self.heads.split(x, context, None if at is None else at[:, 0])

    def _merge(self, x, mixed):
        return self.heads.merge(mixed, x)

    def _mixed(self, x, context, mask, of=None):
        seen = copy(self)
        seen._modules = {
            name: part.observed(of) if isinstance(part, Heads) else part
            for name, part in self._modules.items()
        }
        return type(self).mix(seen, x, context, mask)  # not one that wraps it
