"""Continuing a prompt token by token through streaming states: sampling, and beam search.

Beam search keeps the `beams` most likely open sequences. Those of a row's best candidates that end leave the beam as
hypotheses; the row is closed once it has as many as beams, or at max_new_tokens, where open sequences count as they are.

    score(Y) = log P(Y) / ((5 + |Y|) / 6)^a                (Wu et al. 2016, arXiv 1609.08144, without coverage)

|Y| counts the new tokens, the ending one included; a = 0.6 and 4 beams in Vaswani et al. 2017. One beam is greedy search.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from regard.core import (
    WIDEST,
    CheckedOptions,
    Mixer,
    OptionError,
    Part,
    Range,
    ShapeError,
    Streamed,
    UnsupportedError,
    Vectors,
    check_integers,
    check_positive,
    in_parts,
    refusal,
    shown,
    stamped,
)
from regard.core.memory import free_bytes, require_memory
from regard.functional.held import in_modes
from regard.functional.rows import upto, wide_type
from regard.models.config import Logits, Model
from regard.models.encoder import Embedding
from regard.models.tokens import Hidden, Numbers, TokenLogits, Tokens, Valid, longest

AnyState = TypeVar("AnyState")
LONG = 4096  # new tokens from which on the memory that they need is compared with what is free
PER_TOKEN = 512  # bytes of a tensor of one new token, beside its numbers

Temperature = Annotated[float, Range(0, WIDEST, "0 (greedy) or a positive number")]
Penalty = Annotated[float, Range(-10, 10, "a number from -10 to 10; 0 turns it off")]


class Continuation(NamedTuple):
    """A prompt that has been read, and how to go on from it.

    step: tokens [b 1] and the state before them -> logits [b V] after them and the state; it uses the state up.
    """

    step: Callable[[Tensor, Any], tuple[Tensor, Any]]
    logits: Logits
    state: Any
    max_new_tokens: int
    eos: int | None


@dataclass(frozen=True)
class Sampling(metaclass=CheckedOptions):
    """Draws the next token: the most likely one at temperature 0, else from softmax(logits / temperature).

    top_k and top_p restrict the draw, as in `restrict`. Raises OptionError for values that cannot be used.
    """

    temperature: Temperature = 0.0
    top_k: int | None = None
    top_p: Part | None = None
    generator: torch.Generator | None = None

    def draw(self, logits: Logits) -> Int[Tensor, "B"]:
        if self.temperature == 0:
            return logits.argmax(-1)
        logits = logits.float()
        least = torch.finfo(logits.dtype).tiny  # float32 has no smaller divisor
        logits = (logits - logits.amax(-1, keepdim=True)) / max(self.temperature, least)
        if self.top_k is not None or self.top_p is not None:
            logits = restrict(logits, self.top_k, self.top_p)
        return torch.multinomial(logits.softmax(-1), 1, generator=self.generator)[:, 0]

    def __call__(self, prompt: Continuation) -> Tokens:
        """The N <= max_new_tokens tokens that follow; after `eos` a row holds `eos` only."""
        step, logits, state, last, eos = prompt
        ended = logits.new_zeros(len(logits), dtype=torch.bool)
        made = []
        while True:
            new = self.draw(logits)
            if eos is not None:
                new = new.masked_fill(ended, eos)
                ended |= new == eos
            made.append(new)
            if len(made) == last or (eos is not None and ended.all()):
                return torch.stack(made, 1)
            logits, state = step(new[:, None], state)


def restrict(logits: Logits, top_k: int | None, top_p: float | None) -> Logits:
    """-inf for tokens outside the k most likely, then outside the smallest set that holds probability top_p.

    Of equal logits the ones with smaller ids count as more likely.
    """
    ordered, ids = logits.sort(descending=True, stable=True)
    drop = torch.zeros_like(ordered, dtype=torch.bool)
    if top_k is not None:
        drop[:, top_k:] = True
    if top_p is not None and top_p < 1:  # rounded sums of all tokens reach 1 before the last
        share = ordered.masked_fill(drop, -math.inf).float().softmax(-1)
        enough = max(top_p, torch.finfo(share.dtype).tiny)
        drop |= share.cumsum(-1) - share >= enough  # that before a token suffices
    return logits.masked_fill(drop.scatter(1, ids, drop), -math.inf)


class Beams(NamedTuple):
    """Best first. After its end a hypothesis holds `eos` only; one that does not exist has the score -inf."""

    tokens: Int[Tensor, "B beams N"]
    scores: Float[Tensor, "B beams"]


@dataclass(frozen=True)
class Search(metaclass=CheckedOptions):
    """Beam search."""

    name = "beam_search"
    beams: int = 4
    length_penalty: Penalty = 0.6

    def __call__(self, prompt: Continuation) -> Beams:
        """The best continuations of each row."""
        step, logits, state, last, eos = prompt
        beams, (B, V) = self.beams, logits.shape
        held = sum(z.nbytes for z in pytree.tree_leaves(state) if isinstance(z, Tensor))
        # all states, twice while rows are picked, and their logits
        each = 2 * held + 4 * logits.nbytes + 16 * B * last
        _require_memory(self.name, f"{beams} beams", beams, each, logits.device)
        eos = -1 if eos is None else eos
        rows = upto(B, logits)[:, None]
        state = reorder(state, rows.expand(B, beams).flatten())
        logits = logits.repeat_interleave(beams, 0)
        dtype = wide_type(logits)
        sums = logits.new_full((B, beams), -math.inf, dtype=dtype)
        tokens = rows.new_zeros(B, beams, 0)
        hypotheses = Beams(tokens, sums)
        sums = torch.cat([sums.new_zeros(B, 1), sums[:, 1:]], 1)  # beams start as one sequence
        for n in range(1, last + 1):
            totals = sums[..., None] + logits.log_softmax(-1, dtype=dtype).view(B, beams, V)
            best, index = totals.flatten(1).topk(min(2 * beams, beams * V))
            parent, new = index // V, index % V
            candidates = torch.cat([tokens[rows, parent], new[..., None]], 2)
            ends = new == eos
            open_row = hypotheses.scores.isinf().any(1, keepdim=True)
            scores = best / ((5 + n) / 6) ** self.length_penalty
            scores = scores.masked_fill(~((ends | (n == last)) & open_row), -math.inf)[:, :beams]
            hypotheses = _best(hypotheses, Beams(candidates[:, :beams], scores), eos)
            if n == last or hypotheses.scores.isfinite().all():
                break
            sums, kept = best.masked_fill(ends, -math.inf).topk(beams)
            tokens = candidates[rows, kept]
            state = reorder(state, (rows * beams + parent[rows, kept]).flatten())
            logits, state = step(tokens[..., -1].reshape(-1, 1), state)
        return hypotheses


def _require_memory(who: str, what: str, count: int, each: int, device: torch.device) -> None:
    """Raise OptionError, which says how many would fit, if so many times these bytes do not."""
    fit = (free_bytes(device) or 0) // max(1, each)
    require_memory(who, what, count * each, device, f"At most {fit} would fit.")


def _best(old: Beams, new: Beams, eos: int) -> Beams:
    """The best of both, as many as there are beams; the old ones, a token shorter, are filled with eos."""
    filler = new.tokens.new_full((*old.tokens.shape[:2], 1), max(eos, 0))
    tokens = torch.cat([torch.cat([old.tokens, filler], 2), new.tokens], 1)
    scores, index = torch.cat([old.scores, new.scores], 1).topk(old.scores.shape[1])
    return Beams(tokens.gather(1, index[..., None].expand(-1, -1, tokens.shape[2])), scores)


def reorder(state: AnyState, index: Int[Tensor, "b"]) -> AnyState:
    """Returns the rows of a streaming state (a mixer's or a model's) in the order of `index`: beams, or a smaller batch.

    Raises ShapeError for what is no state, a state that was given away, and an index that is no tensor of integers.
    """
    check_integers("reorder: index", index, 1)
    wrong = ShapeError(f"reorder: state must be a mixer's or a model's, got {shown(state)}")

    def stamp(part: object) -> bool:
        return isinstance(part, Streamed) and part.origin is not None

    def rows(part: Any) -> Any:
        if isinstance(part, Tensor) and part.ndim:
            if index.is_cpu and index.numel() and not 0 <= index.min() <= index.max() < len(part):
                raise ShapeError(f"reorder: index must name rows from 0 to {len(part) - 1}")
            return part.index_select(0, index.long())
        if not stamp(part):
            raise wrong
        if part.origin.given_away:
            raise ShapeError(refusal("reorder", "", part.origin, part.origin.owner))
        return stamped(pytree.tree_map_only(Tensor, rows, part), part.origin.owner, part.most)

    parts = pytree.tree_leaves(state, is_leaf=lambda part: isinstance(part, Streamed))
    if not any(isinstance(part, Streamed) for part in parts):
        raise wrong
    return pytree.tree_map(rows, state, is_leaf=stamp)


class GenerativeModel(Model):
    """A model that continues what it has read, and whose states hold what is needed for that.

    who: how errors name it. streamed: the mixers that go on from a state within one call.
    """

    who: str
    initial_state: Callable

    @property
    @abstractmethod
    def target_embedding(self) -> Embedding:
        """The embedding of what is read and made, whose rows give the logits too."""

    @property
    @abstractmethod
    def max_target_len(self) -> int | None:
        """The longest target; None where neither the positions nor a mixer bounds it."""

    @property
    @abstractmethod
    def streamed(self) -> Sequence[Mixer]: ...

    @abstractmethod
    def _extend(self, *args: Any, **how: Any) -> tuple[Hidden, Any]:
        """Hidden tokens, and the state after them, of the arguments of `extend`."""

    @abstractmethod
    def _logits(self, hidden: Vectors) -> Float[Tensor, "*b vocab"]:
        """Logits of the tokens after these."""

    def extend(
        self,
        tokens: Tokens,
        state: Any,
        *,
        valid: Valid = None,
        documents: Numbers = None,
        donate: bool = False,
    ) -> tuple[TokenLogits, Any]:
        """Logits after each of the next N tokens, and the state; any chunking gives what `forward` gives, unless a mixer streams by segments.

        documents: a new number begins with a new state. Raises UnsupportedError where a model reads whole rows alone.
        """
        hidden, state = self._extend(tokens, state, valid=valid, documents=documents, donate=donate)
        return self._logits(hidden), state

    @torch.no_grad()
    def _go_on(
        self,
        decode: Callable[[Continuation], Any],
        tokens: Tokens,
        valid: Valid,
        max_new_tokens: int,
        eos: int | None,
        /,
        *given: Any,
        **more: Any,
    ) -> Any:
        """What `decode` makes of prompts that have been checked. given, more: arguments of `initial_state`."""
        require_exact_streams(self.streamed)
        if in_parts(self):
            raise UnsupportedError(
                f"{self.who} does not support generation from parts: FSDP gathers parameters for forward alone. Load the whole weights"
            )
        vocab_size = self.target_embedding.table.num_embeddings
        most = self.max_target_len
        if eos is not None and (type(eos) is not int or not 0 <= eos < vocab_size):
            raise OptionError(f"eos ({eos!r}) must be a token id below vocab_size ({vocab_size})")
        self._check_room(tokens, valid, max_new_tokens)
        room = tokens.shape[1] + max_new_tokens - 1

        def step(new: Int[Tensor, "b 1"], state: Any) -> tuple[Tensor, Any]:
            hidden, state = self._extend(new, state, donate=True)
            return self._logits(hidden[:, 0]), state

        with evaluating(self):
            most = room if most is None else min(room, most)
            state = self.initial_state(*given, max_len=most, **more)
            hidden, state = self._extend(tokens, state, valid=valid, donate=True)
            logits = self._logits(last_valid(hidden, valid))
            if not (logits.is_meta or (logits < math.inf).all()):
                raise OptionError(f"{self.who}: its logits are no finite numbers: it diverged")
            return decode(Continuation(step, logits, state, max_new_tokens, eos))

    def _check_room(self, tokens: Tokens, valid: Valid, max_new_tokens: int) -> None:
        """Every row has a token, and room for the new ones."""
        check_positive(max_new_tokens=max_new_tokens)
        most, max_len = tokens.shape[1], self.max_target_len
        if valid is not None:
            counts = valid.sum(1)
            most = longest(counts)
            if (counts == 0).any():
                raise ShapeError(
                    f"{self.who}: a prompt without any valid token has nothing to follow"
                )
        if max_len is not None and most + max_new_tokens - 1 > max_len:
            raise ShapeError(
                f"{self.who}: a prompt of {most} tokens and max_new_tokens ({max_new_tokens}) "
                f"exceed max_len ({max_len})"
            )
        if max_new_tokens > LONG:
            what = f"max_new_tokens ({max_new_tokens})"
            each = PER_TOKEN + 16 * len(tokens)
            _require_memory(self.who, what, max_new_tokens, each, tokens.device)


def require_exact_streams(mixers: Iterable[Mixer]) -> None:
    """Raises UnsupportedError for a mixer whose stream is not what `forward` gives."""
    for mixer in mixers:
        mixer.require("streaming")
        if mixer.capabilities.streaming == "segment":
            raise UnsupportedError(
                f"{mixer.name} does not support generate: its streaming equals forward within one call only. "
                "Call extend with segments of your own choice."
            )


def evaluating(model: nn.Module) -> AbstractContextManager[None]:
    """Eval mode inside; afterwards every module is in the mode that it was in. In training mode a model serves one thread at a time."""
    return in_modes(dict.fromkeys(model.modules(), False))


def last_valid(x: Hidden, valid: Valid) -> Float[Tensor, "B D"]:
    """The last valid token of each row."""
    if valid is None:
        return x[:, -1]
    last = torch.where(valid, upto(valid.shape[1], valid), -1).amax(1)
    return x[upto(x.shape[0], x), last]
