"""Another mechanism in a model that was trained with softmax attention: projections are re-used, then taught.

    student = convert(teacher, "linear", max_len=4096)                 the same model, with other mixers
    for loss in teach(student, teacher, batches, optimizer): ...       each mixer alone, on the teacher's own inputs
    for loss in teach(student, teacher, batches, optimizer, whole=True): ...      then the outputs of the stack

`teach` is an iterator of losses, one for each step: it can be stopped and gone on with, and what a checkpoint needs is
the student's and the optimiser's state dicts.
"""

import copy
from collections.abc import Iterable, Iterator
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core import Mixer, UnsupportedError
from regard.hf.load import Stack, linear
from regard.mixers.build import build, option_names, resolve
from regard.models.block import Block
from regard.nn.after_step import after_step
from regard.nn.heads import Heads
from regard.positions.base import Position
from regard.positions.relative import Rotary

Batch = tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"] | None]


def convert(
    model: Stack, mixer: str | type[Mixer], *, max_len: int | None = None, **options: Any
) -> Stack:
    """A copy of the model around this mechanism, with the projections, norms and feed-forward layers that it had.

    max_len: a table of positions that is shorter is tiled (Beltagy et al. 2020, arXiv 2004.05150). Fewer key and value
    heads are repeated where the mechanism has none of its own, which changes nothing. Raises UnsupportedError, with the
    reason, for a mechanism that cannot take over the projections, the positions or the direction.
    """
    student = copy.deepcopy(model)
    place = student.embedding.place
    if place is not None and max_len is not None:
        student.embedding.place = _tiled(place, student.embedding.offset, max_len)
    known = place.num_embeddings - student.embedding.offset if place is not None else None
    for i, module in enumerate(student.blocks):
        block = cast(Block, module)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(i)  # random features and blocks: another draw for each layer
            block.mixer = _like(block.mixer, resolve(mixer), max_len or known, options)
        block.mixer.require("causal" if student.causal else "bidirectional")
    return student.train(model.training)


def teach(
    student: Stack,
    teacher: Stack,
    batches: Iterable[Batch],
    optimizer: torch.optim.Optimizer,
    *,
    whole: bool = False,
) -> Iterator[float]:
    """One step for each batch; yields its loss, the squared error over the teacher's mean square at valid tokens.

    By default each mixer learns what the teacher's gives for the teacher's own input, all layers at once; `whole`
    compares the outputs of the stacks.
    """
    for tokens, valid in batches:
        if whole:
            with torch.no_grad():
                want = teacher(tokens, valid=valid)
            loss = _error(student(tokens, valid=valid), want, valid)
        else:
            pairs = _layers(student, teacher, tokens, valid)
            loss = torch.stack([_error(y, want, valid) for y, want in pairs]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        after_step(student)
        yield float(loss.detach())


def _layers(
    student: Stack, teacher: Stack, tokens: Tensor, valid: Tensor | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """For each layer what both mixers give for the teacher's input."""
    mask = teacher._mask(valid, None)
    with torch.no_grad():
        x = teacher.embedding(tokens, valid, None)
    for module, mixer in zip(teacher.blocks, student.mixers, strict=True):
        block = cast(Block, module)
        with torch.no_grad():
            entering = block.mixer_norm(x) if block.norm_first else x
            want = block.mixer(entering, mask=mask)
            x = block(x, mask=mask)
        yield mixer(entering, mask=mask), want


def _error(
    y: Float[Tensor, "B T D"], want: Float[Tensor, "B T D"], valid: Bool[Tensor, "B T"] | None
) -> Float[Tensor, ""]:
    if valid is not None:
        y, want = y[valid], want[valid]
    return (y - want).square().mean() / want.square().mean()


def _like(old: Mixer, cls: type[Mixer], max_len: int | None, options: dict[str, Any]) -> Mixer:
    heads, options = getattr(old, "heads", None), dict(options)
    if not isinstance(heads, Heads) or heads.key is None:
        raise UnsupportedError(
            f"convert does not support {old.name}: it has no projections to re-use"
        )
    if isinstance(position := getattr(old, "position", None), Position):
        if not isinstance(position, Rotary) or "position" not in option_names(cls):
            raise UnsupportedError(
                f"{cls.name} does not support the {position.name} positions of the model's layers"
            )
        options["position"] = position.name
        options["position_options"] = {"base": position.base, "pairing": position.pairing}
    H, G = heads.num_heads, heads.num_kv_heads
    if "num_kv_heads" in option_names(cls):
        options["num_kv_heads"] = G
    new = build(cls, dim=heads.query.out_features, num_heads=H, max_len=max_len, **options)
    taken = getattr(new, "heads", None)
    if not isinstance(taken, Heads):
        raise UnsupportedError(
            f"{new.name} does not support convert: it has no queries, keys and values"
        )
    repeats = H // G // (H // taken.num_kv_heads)
    taken.query, taken.out = heads.query, heads.out
    taken.value = _repeated(heads.value, G, repeats)
    taken.key = None if taken.key is None else _repeated(heads.key, G, repeats)
    new.dim = old.dim
    return new.to(heads.query.weight.device, heads.query.weight.dtype)


def _repeated(layer: nn.Linear, num_groups: int, repeats: int) -> nn.Linear:
    if repeats == 1:
        return layer

    def heads(z: Tensor) -> Tensor:
        return z.detach().unflatten(0, (num_groups, -1)).repeat_interleave(repeats, 0).flatten(0, 1)

    return linear(heads(layer.weight), None if layer.bias is None else heads(layer.bias))


def _tiled(place: nn.Embedding, offset: int, max_len: int) -> nn.Embedding:
    """The table with its rows repeated from the first position on, up to max_len; its first `offset` rows stay."""
    first, rows = place.weight.detach()[:offset], place.weight.detach()[offset:]
    if max_len <= len(rows):
        return place
    copies = rows.repeat(-(-max_len // len(rows)), 1)[:max_len]
    return nn.Embedding.from_pretrained(torch.cat([first, copies]), freeze=False)
