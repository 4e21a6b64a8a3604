"""Packed documents: each becomes a row of its own, in buckets of like length; what comes out goes back to its place.

Tokens of unlike `mask.documents` are as if in rows of their own. A stream takes its documents one after the other, and its
state begins anew with each.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import embedding, pad
from torch.utils import _pytree as pytree

from regard.core.errors import ShapeError, UnsupportedError
from regard.core.mask import Mask
from regard.core.request import (
    Observation,
    check_request,
    compacted,
    compaction,
    documents_with_context,
    existing,
    permute,
    with_facts,
)
from regard.core.shapes import (
    Context,
    NewMarks,
    NewTokens,
    Queries,
    Scalar,
    Tokens,
    Weights,
    is_mapped,
)
from regard.core.states import extended

PADDING = 512
"""Tokens that padding may add to a bucket; an eighth of its tokens where that is more."""


class Bucket(NamedTuple):
    """Documents of like length, the longest first."""

    tokens: Int[
        Tensor, "n L"
    ]  # their places b T + t in the batch; any place behind a document's end
    inside: Bool[Tensor, "n L"]  # True for tokens of a document, False behind its end
    mask: Mask


class Packed(NamedTuple):
    """The documents of a batch [B T]."""

    buckets: list[Bucket]
    source: Int[
        Tensor, "B T"
    ]  # slot of each token among all slots of the buckets; the last, one more, is zero
    in_place: bool  # documents of one length fill the batch, so that their rows are a view

    def rows(self, x: Tokens) -> Iterator[tuple[Float[Tensor, "n L D"], Mask]]:
        """The documents of each bucket, and their mask."""
        for bucket in self.buckets:
            rows = (
                x.reshape(*bucket.tokens.shape, -1)
                if self.in_place
                else embedding(bucket.tokens, x.flatten(0, 1))
            )
            yield rows, bucket.mask

    def joined(self, ys: list[Float[Tensor, "n L D"]]) -> Tokens:
        """The rows of all buckets, each token at its place; zero at tokens that are in no document."""
        if self.in_place:
            return ys[0].reshape(*self.source.shape, -1)
        slots = torch.cat([*(y.flatten(0, 1) for y in ys), ys[0].new_zeros(1, ys[0].shape[-1])])
        return embedding(self.source, slots)

    def joined_heads(self, zs: Sequence) -> Queries | None:
        """`joined` for tensors [n H L K]; None where there are none."""
        if zs[0] is None:
            return None
        y = self.joined([z.transpose(1, 2).flatten(2) for z in zs])
        return y.unflatten(2, (zs[0].shape[1], -1)).transpose(1, 2)

    def joined_weights(self, maps: Sequence) -> Weights | None:
        """Maps [n H L P + L] of the buckets in one that is zero between documents; P prefix keys come first."""
        if maps[0] is None:
            return None
        B, T = self.source.shape
        _, H, L, S = maps[0].shape
        prefix = S - L
        whole = maps[0].new_zeros(B, T, prefix + T, H)
        for bucket, weights in zip(self.buckets, maps, strict=True):
            row, place = bucket.tokens // T, bucket.tokens % T
            seen = torch.arange(prefix, device=place.device).expand(len(place), -1)
            columns = torch.cat([seen, prefix + place], 1)
            within = torch.cat([torch.ones_like(seen, dtype=torch.bool), bucket.inside], 1)
            pairs = bucket.inside[:, :, None] & within[:, None]
            n, i, j = pairs.nonzero(as_tuple=True)
            whole = whole.index_put((row[n, i], place[n, i], columns[n, j]), weights[n, :, i, j])
        return whole.permute(0, 3, 1, 2)


def mean_of_queries(
    mixer: Any,
    f: Callable[[Tensor, Tensor | None, Mask], Float[Tensor, "B T"]],
    x: Tokens,
    context: Context,
    mask: Mask,
) -> Scalar:
    """The mean of f(x, context, mask) over the queries that see a key; f gets compact rows, of one document each.

    Raises what `Mixer.forward` raises for the request.
    """
    check_request(mixer, x, context, mask)
    pack = documents_of(mixer, mask)
    parts = [(x, context, mask)] if pack is None else [(z, None, m) for z, m in pack.rows(x)]
    total = count = x.new_zeros(())
    for part in parts:
        request = compacted(mixer, *part)
        found = f(request.x, request.context, request.mask)
        some = existing(found, request.answered)
        total = total + (found * some).sum()
        count = count + some.sum()
    return total / count.clamp_min(1)


def documents_of(mixer: Any, mask: Mask) -> Packed | None:
    """The documents of `mask.documents`; None where it has none, and where no token exists.

    A bucket holds documents of one length only where the mixer serves no padding.
    Raises ShapeError for a number that comes again after a gap, UnsupportedError where numbers cannot be read: while a program is
    exported, under vmap, and on the meta device.
    """
    if mask.documents is None:
        return None
    who = mixer.name
    if torch.compiler.is_exporting():
        raise UnsupportedError(
            f"{who} does not export documents: their lengths are read. Export the model for rows of one document."
        )
    if mask.documents.is_meta or is_mapped(mask.documents):
        raise UnsupportedError(
            f"{who} does not support documents under vmap or on the meta device: they are read"
        )
    B, T = mask.documents.shape
    kept = existing(mask.documents, mask.valid).flatten().nonzero()[:, 0]
    if not len(kept):
        return None
    keys = torch.stack([kept // T, mask.documents.flatten()[kept]])
    first = torch.ones_like(kept, dtype=torch.bool)
    first[1:] = keys.diff().any(0)
    starts = first.nonzero()[:, 0]
    _check_gaps(who, keys[:, starts])
    lengths = starts.diff(append=starts.new_tensor([len(kept)]))
    order = lengths.argsort(descending=True, stable=True)
    buckets = []
    for low, high in _cuts(lengths[order].tolist(), mixer.capabilities.padding):
        rows = order[low:high]
        steps = torch.arange(int(lengths[rows[0]]), device=kept.device)
        inside = steps < lengths[rows, None]
        tokens = kept[(starts[rows, None] + steps).clamp_max(len(kept) - 1)]
        buckets.append(Bucket(tokens, inside, _mask_of(mask, tokens, inside)))
    tokens, inside = (
        torch.cat([z.flatten() for z in of]) for of in zip(*(b[:2] for b in buckets), strict=True)
    )
    source = kept.new_full((B * T,), len(tokens))
    slots = inside.nonzero()[:, 0]
    source[tokens[slots]] = slots
    in_place = len(buckets) == 1 and len(tokens) == len(kept) == B * T
    return Packed(buckets, source.view(B, T), in_place)


def _check_gaps(who: str, keys: Int[Tensor, "two n"]) -> None:
    unlike, times = keys.unique(dim=1, return_counts=True)
    if len(times) < keys.shape[1]:
        row, number = unlike[:, times.argmax()].tolist()
        raise ShapeError(
            f"{who}: mask.documents has number {number} again after a gap in row {row}. A document's tokens stand together: "
            "give each a number of its own."
        )


def _cuts(lengths: list[int], padding: object) -> list[tuple[int, int]]:
    """Ranges of documents, sorted from the longest to the shortest, that become one bucket each."""
    cuts, low, added = [], 0, 0
    for i, length in enumerate(lengths):
        added += lengths[low] - length
        if added > (max(PADDING, lengths[low] * (i - low) // 8) if padding else 0):
            cuts.append((low, i))
            low, added = i, 0
    return [*cuts, (low, len(lengths))]


def _mask_of(mask: Mask, tokens: Int[Tensor, "n L"], inside: Bool[Tensor, "n L"]) -> Mask:
    T = mask.documents.shape[1]  # type: ignore[union-attr]
    row, place = tokens // T, tokens % T
    pairwise, marks = mask.pairwise, mask.global_tokens
    if pairwise is not None:
        pairs = pairwise[row[:, :1, None] % len(pairwise), :, place[:, :, None], place[:, None]]
        pairwise = pairs.permute(0, 3, 1, 2)
    if marks is not None:
        marks = marks.flatten()[tokens] & inside
    return Mask(mask.causal, None if inside.all() else inside, pairwise, marks)


def observed(pack: Packed, observations: list[Observation]) -> Observation:
    """The observations of the buckets as one of the batch."""
    q, k, v, weights, heads = zip(*observations, strict=True)
    join = pack.joined_heads
    return Observation(join(q), join(k), join(v), pack.joined_weights(weights), join(heads))


def extended_documents(
    mixer: Any,
    x: NewTokens,
    state: Any,
    valid: NewMarks,
    documents: Int[Tensor, "B N"],
    donate: bool,
) -> tuple[NewTokens, Any]:
    """`extend` of one document after the other: a number unlike the one before begins with a new state.

    Raises ShapeError for a number that comes again after a gap, and for a state whose tokens had no numbers; UnsupportedError for a
    state over a context.
    """
    N = x.shape[1]
    if any(pytree.GetAttrKey("kept") in path for path, _ in pytree.tree_leaves_with_path(state)):
        raise documents_with_context(mixer.name)
    present = existing(documents, valid)
    if not present.any():
        return extended(mixer, x, state, valid, donate)
    if state.document is None and state.length.any():
        raise ShapeError(
            f"{mixer.name}: the state holds tokens that came without documents. Give documents from the first call on."
        )
    order = compaction(present)
    numbers = permute(documents, order.source)
    before = numbers[:, 0] if state.document is None else state.document
    changed = numbers.diff(prepend=before[:, None]) != 0
    first = changed & order.valid
    first[:, 0] = order.valid[:, 0]
    left = changed[:, 0] & (state.length > 0)  # the state's own document came before these
    rows = torch.cat([left.nonzero()[:, 0], first.nonzero()[:, 0]])
    _check_gaps(mixer.name, torch.stack([rows, torch.cat([before[left], numbers[first]])]))
    runs = permute(changed.cumsum(1), order.target)
    y: Any = 0
    state = with_facts(state, document=None)
    for run in range(int(runs[present].max()) + 1):
        here = present & (runs == run)
        if run:
            state = _renewed(mixer, state, here.any(1))
        columns = here.any(0).nonzero()[:, 0].tolist()
        if columns:
            low, high = columns[0], columns[-1] + 1
            piece = None if here[:, low:high].all() else here[:, low:high]
            if piece is not None:
                mixer.require("padding")
            part, state = extended(mixer, x[:, low:high], state, piece, donate)
            y = y + pad(part, (0, 0, low, N - high))
    last = order.valid.sum(1, keepdim=True) - 1
    numbers = torch.where(last[:, 0] < 0, before, numbers.gather(1, last.clamp_min(0))[:, 0])
    return y, with_facts(state, document=numbers)


def _renewed(mixer: Any, state: Any, rows: Bool[Tensor, "B"]) -> Any:
    """The state with these rows as before the first token; room that was reserved stays."""
    fields, spec = pytree.tree_flatten(state)
    new = pytree.tree_leaves(mixer._initial_state(len(rows), None, None, None))

    def renewed(old: Tensor, fresh: Tensor) -> Tensor:
        room = [n for a, b in zip(old.shape[1:], fresh.shape[1:], strict=True) for n in (a - b, 0)]
        return torch.where(rows.view(-1, *[1] * (old.ndim - 1)), pad(fresh, room[::-1]), old)

    return pytree.tree_unflatten(map(renewed, fields, new), spec)
