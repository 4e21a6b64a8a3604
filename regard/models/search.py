"""Continuing a sequence token by token through streaming states: sampling, and beam search.

Beam search keeps the `beams` most likely open sequences. Those of a row's best candidates that end leave the beam as
hypotheses; the row is closed once it has as many as beams, or at max_new_tokens, where open sequences count as they are.

    score(Y) = log P(Y) / ((5 + |Y|) / 6)^a                (Wu et al. 2016, arXiv 1609.08144, without coverage)

|Y| counts the new tokens, the ending one included; a = 0.6 and 4 beams in Vaswani et al. 2017. One beam is greedy search.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from regard.core import Mixer, OptionError, ShapeError, UnsupportedError
from regard.core.shapes import check_positive
from regard.models.sampling import sample

AnyState = TypeVar("AnyState")
Step = Callable[[Tensor, AnyState], tuple[Tensor, AnyState]]
"""tokens [b 1] and the state before them -> logits [b V] after them and the state; the state passed in is used up."""


class Beams(NamedTuple):
    """Best first. After its end a hypothesis holds `eos` only; one that does not exist has the score -inf."""

    tokens: Int[Tensor, "B beams N"]
    scores: Float[Tensor, "B beams"]


def sample_tokens(
    step: Step[AnyState],
    logits: Float[Tensor, "B V"],
    state: AnyState,
    *,
    max_new_tokens: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    generator: torch.Generator | None,
    eos: int | None,
) -> Int[Tensor, "B N"]:
    """The N <= max_new_tokens tokens that follow; the most likely ones at temperature 0."""
    ended = torch.zeros(logits.shape[0], dtype=torch.bool, device=logits.device)
    made: list[Tensor] = []
    while True:
        new = sample(logits, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator)
        if eos is not None:
            new = new.masked_fill(ended, eos)
            ended = ended | (new == eos)
        made.append(new)
        if len(made) == max_new_tokens or (eos is not None and bool(ended.all())):
            return torch.stack(made, dim=1)
        logits, state = step(new[:, None], state)


def beam_search(
    step: Step[AnyState],
    logits: Float[Tensor, "B V"],
    state: AnyState,
    *,
    beams: int,
    max_new_tokens: int,
    length_penalty: float,
    eos: int | None,
) -> Beams:
    """The best continuations of each row, given the logits and the state after its prompt."""
    B, V = logits.shape
    rows = torch.arange(B, device=logits.device)[:, None]
    state = reorder(state, rows.expand(B, beams).flatten())
    logits = logits.repeat_interleave(beams, dim=0)
    dtype = torch.promote_types(logits.dtype, torch.float32)
    sums = torch.full((B, beams), -math.inf, dtype=dtype, device=logits.device)
    hypotheses = Beams(rows.new_zeros(B, beams, 0), sums)
    sums = torch.cat([sums.new_zeros(B, 1), sums[:, 1:]], dim=1)  # the beams start as one sequence
    tokens = rows.new_zeros(B, beams, 0)
    for n in range(1, max_new_tokens + 1):
        totals = sums[..., None] + logits.log_softmax(-1, dtype=dtype).view(B, beams, V)
        best, index = totals.flatten(1).topk(min(2 * beams, beams * V))
        parent, new = index // V, index % V
        candidates = torch.cat([tokens[rows, parent], new[..., None]], dim=2)
        ends = torch.zeros_like(new, dtype=torch.bool) if eos is None else new == eos
        closes = ends if n < max_new_tokens else torch.ones_like(ends)
        open_row = hypotheses.scores.isinf().any(1, keepdim=True)
        scores = best / ((5 + n) / 6) ** length_penalty
        scores = scores.masked_fill(~(closes & open_row), -math.inf)[:, :beams]
        hypotheses = _best(hypotheses, Beams(candidates[:, :beams], scores), eos)
        if n == max_new_tokens or bool(hypotheses.scores.isfinite().all()):
            break
        sums, kept = best.masked_fill(ends, -math.inf).topk(beams)
        tokens, source = candidates[rows, kept], rows * beams + parent[rows, kept]
        logits, state = step(tokens[..., -1].reshape(-1, 1), reorder(state, source.flatten()))
    return hypotheses


def _best(old: Beams, new: Beams, eos: int | None) -> Beams:
    """As many of both as there are beams; the old ones, a token shorter, are filled with eos."""
    filler = new.tokens.new_full((*old.tokens.shape[:2], 1), 0 if eos is None else eos)
    tokens = torch.cat([torch.cat([old.tokens, filler], dim=2), new.tokens], dim=1)
    scores, index = torch.cat([old.scores, new.scores], dim=1).topk(old.scores.shape[1])
    return Beams(tokens.gather(1, index[..., None].expand(-1, -1, tokens.shape[2])), scores)


def reorder(state: AnyState, index: Int[Tensor, "b"]) -> AnyState:
    """The rows of a streaming state (a mixer's or a model's) in the order of `index`: beams, or a smaller batch."""
    return pytree.tree_map_only(Tensor, lambda tensor: tensor.index_select(0, index), state)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode inside; afterwards every module is in the mode that it was in."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def last_valid(
    x: Float[Tensor, "B T D"], valid: Bool[Tensor, "B T"] | None
) -> Float[Tensor, "B D"]:
    """The last valid token of each row."""
    if valid is None:
        return x[:, -1]
    last = torch.where(valid, torch.arange(valid.shape[1], device=valid.device), -1).amax(1)
    return x[torch.arange(x.shape[0], device=x.device), last]


def check_continuation(max_new_tokens: int, eos: int | None, vocab_size: int) -> None:
    check_positive(max_new_tokens=max_new_tokens)
    if eos is not None and not (
        isinstance(eos, int) and not isinstance(eos, bool) and 0 <= eos < vocab_size
    ):
        raise OptionError(f"eos ({eos!r}) must be a token id below vocab_size ({vocab_size})")


def check_beams(beams: int, length_penalty: float) -> None:
    check_positive(beams=beams)
    if not (isinstance(length_penalty, int | float) and math.isfinite(length_penalty)):
        raise OptionError(
            f"length_penalty ({length_penalty!r}) must be a finite number; 0 asks for none"
        )


def check_streams_exactly(mixers: Iterable[Mixer]) -> None:
    for mixer in mixers:
        if mixer.capabilities.streaming == "segment":
            raise UnsupportedError(
                f"{mixer.name} does not support generate: its streaming equals forward within one call only. "
                "Call extend with segments of your own choice."
            )


def check_prompt(
    who: str,
    tokens: Int[Tensor, "B T"],
    valid: Bool[Tensor, "B T"] | None,
    max_new_tokens: int,
    max_len: int | None,
) -> None:
    """Every row has a token, and room for the new ones; `max_len` is None where nothing bounds the length."""
    longest = tokens.shape[1]
    if valid is not None:
        counts = valid.sum(1)
        longest = int(counts.max())
        if int(counts.min()) == 0:
            raise ShapeError(f"{who}: a prompt without any valid token has nothing to follow")
    if max_len is not None and longest + max_new_tokens - 1 > max_len:
        raise ShapeError(
            f"{who}: a prompt of {longest} tokens and max_new_tokens ({max_new_tokens}) "
            f"exceed max_len ({max_len})"
        )
