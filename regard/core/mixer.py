"""Mixer: the one interface. x [B T D] -> y [B T D], with masks, context and streaming; requests are checked here."""

from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, final

from torch import Tensor, nn
from torch.compiler import is_compiling

from regard.core.capabilities import Capabilities, No
from regard.core.documents import documents_of, extended_documents, observed
from regard.core.errors import OptionError, ShapeError, UnknownNameError, UnsupportedError, shown
from regard.core.mask import OPEN, Mask, check_arguments
from regard.core.options import Count, Options, Recorded, check_option
from regard.core.request import (
    Observation,
    check_mask,
    check_request,
    check_tokens,
    compacted,
    compaction,
    first_parameter,
)
from regard.core.shapes import (
    Context,
    Marks,
    NewMarks,
    NewNumbers,
    NewTokens,
    Scalar,
    Tokens,
    Weights,
    check_flag,
)
from regard.core.states import Owner, check_state, extended, new_state, owner_of
from regard.core.updates import notice_update

NAMED = 5  # mixers that an error names as those that can
NOTHING: Options = MappingProxyType({})


class Mixer(Recorded):
    """Base of every mechanism. A mechanism writes `mix` and, where declared, `_initial_state`, `_extend`, `_observe`.

    What those methods receive has been checked, and is compact: valid tokens come first in every row, invalid ones are zero, and `mask.valid`
    describes the compact row. What they return at invalid positions is ignored.

    Args:
        dim: channels of a token, D
        num_heads: heads, H
        num_kv_heads: heads of keys and values; None: as many as queries have
        position: positions, of `regard ls positions`
        position_options: options of the positions
        scale: factor of q . k before the normaliser; None: 1 / sqrt(K)
        head_dim: channels of a head; None: dim / num_heads
        bias: True: linear maps have a bias; "qkv": those of queries, keys and values alone
        qk_norm: True: an RMSNorm of each head's queries and keys, before rotary positions; "all": of all heads together
        soft_cap: c of c tanh(z / c), which scores become before the softmax; None: no bound
        gate: True: the outputs of the heads are multiplied by sigmoid(W x)
        sinks: True: a learned logit for each head joins the softmax, and has no value
        impl: how the kernel runs; it never changes the result
        max_len: largest number of tokens in a row, where the mechanism needs one; None: no limit
    """

    name: ClassVar[str]
    family: ClassVar[str]  # kernel family; colours the charts
    paper: ClassVar[str]  # authors, year, arXiv id
    capabilities: Capabilities  # of the default options; the instance's value is authoritative
    variants: ClassVar[Mapping[str, Options]] = NOTHING  # every law runs over all of them
    limits: ClassVar[Mapping[str, tuple[Options, Options]]] = NOTHING
    """Entries that this one equals at a limit: name -> (own options, the other's options); parameters are copied."""

    catalogue: ClassVar[Mapping[str, "type[Mixer]"]] = NOTHING
    """The library's mixers, which `regard.mixers` puts here: an error names those that can."""

    beside_heads: str | None = None
    """The part that reads tokens without passing through `heads`: q, k and v alone are then not enough for this mixer."""

    delay: int = 0  # causal queries may not see as many of the latest tokens
    _mixed_width: int | None = None  # channels of what `mix` gives, if not those of its tokens
    updates: tuple[int | None, int] = (None, 0)  # version of a parameter, updates since after_step
    _owner: Owner  # name and options that the states carry

    def __new__(cls, *args: Any, **kwargs: Any):
        mixer = super().__new__(cls, *args, **kwargs)
        if args or kwargs:
            object.__setattr__(mixer, "_owner", owner_of(getattr(cls, "name", ""), mixer.options))
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
        self.capabilities = self.capabilities.but(**changes)

    # ------------------------------------------------------------------ for callers

    def require(self, what: str) -> None:
        """Raise UnsupportedError, with the declared reason, if the capability of this name is a `No`, UnknownNameError if there is none."""
        if not hasattr(self.capabilities, str(what)):
            raise UnknownNameError("capability", what, vars(self.capabilities))
        answer = getattr(self.capabilities, what)
        if isinstance(answer, No):
            able = sorted(k for k, c in self.catalogue.items() if getattr(c.capabilities, what))
            more = f" and {len(able) - NAMED} more" if len(able) > NAMED else ""
            instead = f" Mixers that do: {', '.join(able[:NAMED])}{more}." if able else ""
            raise UnsupportedError(
                f"{self.name} does not support {what}: {answer.reason}.{instead}"
            )

    @final  # type: ignore[misc]
    def forward(
        self, x: Tokens, *wrong: Any, context: Context = None, mask: Mask = OPEN, **unknown: Any
    ) -> Tokens:
        """Mix tokens. Outputs at invalid positions, and of queries that may see nothing, are exactly zero.

        Raises ShapeError for what does not fit, UnsupportedError for what is declared as a `No`, OptionError and
        UnknownNameError for arguments that it does not take.
        """
        if wrong or unknown:
            check_arguments(self.name, wrong, unknown)
        check_request(self, x, context, mask)
        if self.training and not is_compiling() and self.changes_after_step:
            notice_update(self)
        if mask.documents is not None and (pack := documents_of(self, mask)) is not None:
            return pack.joined([Mixer.forward(self, z, mask=m) for z, m in pack.rows(x)])
        request = compacted(self, x, context, mask)
        y = self.mix(request.x, request.context, request.mask)
        if not is_compiling():
            wanted = (*request.x.shape[:2], self._mixed_width or x.shape[2])
            if getattr(y, "shape", None) != wanted:
                raise ShapeError(f"{self.name}: mix must give {list(wanted)}, got {shown(y)}")
        return request.restore_output(y)

    if TYPE_CHECKING:

        def __call__(
            self, x: Tensor, *, context: Tensor | None = None, mask: Mask = OPEN
        ) -> Tensor: ...

    @final
    def initial_state(
        self,
        batch_size: int,
        *,
        max_len: int | None = None,
        context: Context = None,
        valid: Marks | None = None,
    ) -> Any:
        """The state before the first token. `max_len` reserves room; `valid` belongs to `context`.

        Raises UnsupportedError where the mechanism does not stream, or not over a context, ShapeError for sizes that do not fit.
        """
        self.require("streaming")
        if not is_compiling():
            check_option(self.name, "batch_size", batch_size, Count)
            check_option(self.name, "max_len", max_len, int | None)
        if max_len is not None:
            self._check_length("max_len", max_len)
        if context is not None:
            self.require("cross")
            self._check_tokens("context", context)
            B, S, _ = context.shape
            if batch_size != B:
                raise ShapeError(f"{self.name}: context has batch {B}, batch_size is {batch_size}")
            self._check_length("context length", S)
            check_mask(self.name, Mask(valid=valid), B, S, S, device=context.device)
            if valid is not None:
                self.require("padding")
                order = compaction(valid)
                context, valid = order.of(context), order.valid
        elif valid is not None:
            raise ShapeError(f"{self.name}: valid belongs to context, and no context was given")
        return new_state(self, batch_size, max_len, context, valid)

    @final
    def extend(
        self,
        x: NewTokens,
        state: Any,
        *,
        valid: NewMarks = None,
        documents: NewNumbers = None,
        donate: bool = False,
    ) -> tuple[NewTokens, Any]:
        """Outputs for the next N >= 1 tokens, and the state after them.

        Where `capabilities.streaming` is "exact", any chunking gives what causal `forward` gives. Where it is "segment", one call does, and later
        calls see of earlier ones what the mechanism keeps of them. Tokens that are not `valid` are as if absent. `documents` numbers them: a new number
        begins with a new state. Without it all tokens belong to the last document. `donate=True` lets the new state reuse the storage of the one passed
        in, which is refused if it is used again. Raises ShapeError for the state of another mixer. Compiled, it looks at neither.
        """
        self.require("streaming")
        self._check_tokens("x", x)
        B, N, _ = x.shape
        check_flag(donate=donate)
        check_state(self, state, x)
        if valid is not None or documents is not None:
            check_mask(self.name, Mask(valid=valid, documents=documents), B, N, N, device=x.device)
        if valid is not None:
            self.require("padding")
        if documents is not None:
            return extended_documents(self, x, state, valid, documents, donate)
        return extended(self, x, state, valid, donate)

    def extend_normed(
        self,
        x: NewTokens,
        norm: nn.Module,
        state: Any,
        *,
        valid: NewMarks = None,
        documents: NewNumbers = None,
        donate: bool = False,
    ) -> tuple[NewTokens, Any]:
        """`extend` of norm(x), for a layer that normalises its input; a state that keeps inputs keeps x itself."""
        self._check_tokens("x", x)
        return self.extend(norm(x), state, valid=valid, documents=documents, donate=donate)

    @final
    def attention_map(self, x: Tokens, *, context: Context = None, mask: Mask = OPEN) -> Weights:
        """The weights with which `forward` mixes; zero where a token is invalid or a pair is not allowed. Columns of keys that are no tokens come first."""
        self.require("attention_map")
        weights = self.observe(x, context=context, mask=mask).weights
        assert weights is not None, f"{self.name} declares a map, and _observe gives no weights"
        return weights

    @final
    def observe(
        self, x: Tokens, *, context: Context = None, mask: Mask = OPEN, weights: bool = True
    ) -> Observation:
        """Queries, keys, values, weights and head outputs of one forward, as far as they exist.

        weights=False gives values and head outputs alone: where the mixer never forms weights, nothing of size [T S] is made.
        """
        check_flag(weights=weights)
        check_request(self, x, context, mask)
        if (pack := documents_of(self, mask)) is not None:
            return observed(
                pack, [self.observe(z, mask=m, weights=weights) for z, m in pack.rows(x)]
            )
        request = compacted(self, x, context, mask)
        given = request.x, request.context, request.mask
        found = self._observe(*given) if weights else self._observe_heads(*given)
        if weights and found.heads is None:
            found = found._replace(heads=self._observe_heads(*given).heads)
        return request.restore_observation(found)

    @final
    def plan(
        self, x: Tokens, *, context: Context = None, mask: Mask = OPEN
    ) -> dict[str, Tensor] | None:
        """Random or data-dependent structure (hashes, blocks) that `forward` uses, for oracles; positions count the valid tokens of the row.

        Raises UnsupportedError for documents.
        """
        check_request(self, x, context, mask)
        if mask.documents is not None:
            raise UnsupportedError(
                f"{self.name}: plan is of rows, not of documents. Give it each document as a row of its own."
            )
        request = compacted(self, x, context, mask)
        return self._plan(request.x, request.context, request.mask)

    def auxiliary_loss(
        self, x: Tokens, *, context: Context = None, mask: Mask = OPEN
    ) -> Scalar | None:
        """What trains parts that get no gradient of the output, for the caller to add to the loss with a weight; None: there are none."""

    @final
    def after_step(self) -> None:
        """Called once after each optimiser step, for the mixers inside too; a mechanism that moves something then writes `_after_step`.

        `regard.nn.after_step(model, group)` calls it for a whole model, and first adds up what processes counted; alone,
        it communicates nothing.
        """
        for part in self.modules():
            if isinstance(part, Mixer):
                part.updates = (part.updates[0], 0)
                part._after_step()

    @property
    def changes_after_step(self) -> bool:
        """True if `after_step` does anything with these options."""
        return type(self)._after_step is not Mixer._after_step

    # ------------------------------------------------------------------ for mechanisms

    @abstractmethod
    def mix(self, x: Tokens, context: Context, mask: Mask) -> Tensor:
        """The mechanism itself. The request fits its capabilities; raises UnsupportedError for what these cannot say."""

    def _initial_state(
        self, batch_size: int, max_len: int | None, context: Tensor | None, valid: Tensor | None
    ) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__} declares streaming without _initial_state"
        )

    def _extend(
        self, x: Tensor, state: Any, valid: Tensor | None, donate: bool
    ) -> tuple[Tensor, Any]:
        raise NotImplementedError(f"{type(self).__name__} declares streaming without _extend")

    def _observe(self, x: Tensor, context: Tensor | None, mask: Mask) -> Observation:
        """What there is of q, k, v and weights; head outputs too where `_observe_heads` does not give them."""
        return Observation()

    def _observe_heads(self, x: Tensor, context: Tensor | None, mask: Mask) -> Observation:
        """Values and head outputs, without the weights where the mechanism forms none."""
        whole = self._observe(x, context, mask)
        return Observation(v=whole.v, heads=whole.heads)

    def _plan(self, x: Tensor, context: Tensor | None, mask: Mask) -> dict[str, Tensor] | None:
        return None

    def _after_step(self) -> None:
        """Centroids move, features are drawn anew. Does nothing by default."""

    # ------------------------------------------------------------------ the checks

    def _check_tokens(self, name: str, x: object) -> None:
        check_tokens(self.name, name, x, self.dim, first_parameter(self))

    def _check_length(self, name: str, length: int) -> None:
        answer = self.capabilities.any_length
        if isinstance(answer, No) and self.max_len is not None and length > self.max_len:
            raise ShapeError(
                f"{self.name}: {name} ({length}) exceeds max_len ({self.max_len}): {answer.reason}"
            )
