"""Another mechanism in a model that was trained with softmax attention: projections are re-used, then taught.

    student = convert(teacher, "linear", max_len=4096)                 the same model, with other mixers
    student = convert(teacher, "linear", layers=range(0, 12, 2))       in some of its layers
    for loss in teach(student, teacher, batches, optimizer): ...       each mixer alone, on the teacher's own inputs
    for loss in teach(student, teacher, batches, optimizer, whole=True): ...      then the outputs of the stack

`teach` is an iterator of losses, one for each step: it can be stopped and gone on with, and what a checkpoint needs is
the student's and the optimiser's state dicts. With `held_out` batches it leaves the best weights that it saw.
"""

import copy
import inspect
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.core import Mixer, No, OptionError, Scalar, UnsupportedError, Whole, shown
from regard.hf.stack import Stack
from regard.hf.weights import linear
from regard.mixers.build import build, check_own, option_names, resolve
from regard.models.config import AnyMixer, Options
from regard.models.generation import evaluating
from regard.models.tokens import Hidden, Tokens, Valid
from regard.nn.after_step import after_step
from regard.nn.heads import Heads
from regard.nn.recorded import recorded
from regard.positions.base import Position
from regard.positions.relative import Rotary

Batch = tuple[Tokens, Valid]
Error = Scalar
_FACTS = "bias", "gate", "head_dim", "key_dim", "num_kv_heads", "qk_norm", "value_dim"
"""What the layers have, or have not: their projections are taken over."""


def converted(
    model: nn.Module,
    mixer: AnyMixer,
    max_len: int | None,
    layers: Collection[Whole] | None,
    options: Options,
) -> Stack:
    """`regard.hf.convert` of a stack."""
    if not isinstance(model, Stack):
        raise UnsupportedError(
            f"convert does not support {type(model).__name__}: it takes a causal model of Transformers, or a stack that "
            "regard.hf.load gave, such as the encoder of an encoder-decoder"
        )
    check_own("convert", options, *_FACTS)
    chosen = sorted(range(len(model.blocks)) if layers is None else set(layers))
    if not chosen or chosen[0] < 0 or chosen[-1] >= len(model.blocks):
        raise OptionError(
            f"convert: layers ({chosen}) must be some of 0 to {len(model.blocks) - 1}"
        )
    student, origin = copy.deepcopy(model), model.origin
    place = student.embedding.place
    if isinstance(place, nn.Embedding) and max_len is not None:
        student.embedding.place = _tiled(place, student.embedding.offset, max_len)
    known = place.num_embeddings - student.embedding.offset if place is not None else None
    for i in chosen:
        block: Any = student.blocks[i]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(i)  # random features and blocks: another draw for each layer
            block.mixer = _like(block.mixer, resolve(mixer), max_len or known, options)
        block.mixer.require("causal" if student.causal else "bidirectional")
    if origin is not None:
        change = {"mixer": mixer, "max_len": max_len, "layers": chosen, "options": options}
        student.origin = {**origin, "conversions": [*origin["conversions"], change]}
    return student.train(model.training)


def teach(
    student: nn.Module,
    teacher: nn.Module,
    batches: Iterable[Batch],
    optimizer: torch.optim.Optimizer,
    *,
    whole: bool = False,
    held_out: Sequence[Batch] = (),
    every: int = 8,
) -> Iterator[float]:
    """One step for each batch; yields its loss, the squared error over the teacher's mean square at valid tokens.

    By default each mixer learns what the teacher's gives for the teacher's own input, all layers at once; `whole`
    compares the outputs of the stacks. Both are stacks, or models that `wrap` or `convert` put around stacks, of one depth.

    held_out: batches that are not among those taught on. The error of the stack is measured on them before the first
    step, at times between and after the last, and the student ends with the weights of the least error, however the
    iterator ends: teaching then never leaves it worse on them than it was. Without them the last weights stay.
    every: steps from one measurement to the next.
    Raises UnsupportedError for a model that is no stack, OptionError for stacks of unlike depths, an optimizer without parameters of the student, a student of which nothing learns, and for a loss that is not finite where nothing is held out.
    """
    student, teacher = _stacks(student, teacher)
    with torch.no_grad():
        wanted = [teacher(tokens, valid=valid) for tokens, valid in held_out]
    _check_optimizer(optimizer, student)
    measured: Any = stack_error if whole else layer_error
    least, weights = math.inf, copy.deepcopy(student.state_dict()) if held_out else None

    def compare() -> None:
        """Keep the weights of now if their mean error is the least so far; one that is not finite never is."""
        nonlocal least, weights
        with evaluating(student), torch.no_grad():
            errors = [
                _error(student(tokens, valid=valid), want, valid).item()
                for (tokens, valid), want in zip(held_out, wanted, strict=True)
            ]
        if errors and (error := sum(errors) / len(errors)) < least:
            least, weights = error, copy.deepcopy(student.state_dict())

    try:
        for number, batch in enumerate(map(_pair, batches)):
            if number % every == 0:
                compare()
            loss = measured(student, teacher, *batch)
            if not loss.requires_grad:
                raise OptionError("teach: no parameter of the student that the loss needs learns")
            if weights is None and not loss.isfinite():
                raise OptionError(
                    f"teach: the loss of step {number} is {loss.item()}: lower the rate"
                )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            after_step(student)
            yield float(loss.detach())
        compare()
    finally:
        if weights is not None:
            student.load_state_dict(weights)


def _check_optimizer(optimizer: torch.optim.Optimizer, student: nn.Module) -> None:
    taught = {id(z) for group in optimizer.param_groups for z in group["params"]}
    if not any(id(z) in taught for z in student.parameters()):
        raise OptionError("teach: the optimizer holds no parameter of the student")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise OptionError(
            "teach: LBFGS asks for a loss several times a step, and teach gives it once"
        )


def _pair(batch: Any) -> Any:
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise OptionError(f"teach: a batch must be (tokens, valid), got {shown(batch)}")
    return batch


def _stacks(*given: nn.Module) -> list:
    """The stacks of student and teacher, which the models are or hold."""
    stacks: list = [getattr(model, "inside", model) for model in given]
    for model in stacks:
        if not isinstance(model, Stack):
            raise UnsupportedError(
                f"teach does not support {type(model).__name__}: it takes stacks, and models around them. Of one of "
                "Transformers, load(model.state_dict(), model.config.to_dict()) is the stack."
            )
    depths = [len(model.blocks) for model in stacks]
    if depths[0] != depths[1]:
        raise OptionError(f"teach takes two stacks of one depth, got {depths} layers")
    return stacks


def rates(error: float) -> tuple[float, float]:
    """Learning rates, of each layer alone and of the whole stack, by the stack's error before teaching."""
    return (5e-4, 2e-4) if error > 0.5 else (1e-4, 5e-5)


def stack_error(student: Stack, teacher: Stack, tokens: Tokens, valid: Valid) -> Error:
    """Squared error of the stack's output over the teacher's mean square, at valid tokens."""
    with torch.no_grad():
        want = teacher(tokens, valid=valid)
    return _error(student(tokens, valid=valid), want, valid)


def layer_error(student: Stack, teacher: Stack, tokens: Tokens, valid: Valid) -> Error:
    """The mean of the errors of those mixers that differ in kind from the teacher's, each on the teacher's own input."""
    with torch.no_grad(), recorded(teacher) as calls:
        teacher(tokens, valid=valid)
    errors = []
    for mixer, call in zip(student.mixers, calls, strict=True):
        if mixer.options == call.mixer.options and type(mixer) is type(call.mixer):
            continue
        errors.append(_error(mixer(call.x, mask=call.mask), call.y, valid))
    if not errors:
        raise OptionError("teach: the student has the mixers of its teacher. Convert it first.")
    return torch.stack(errors).mean()


def _error(y: Hidden, want: Hidden, valid: Valid) -> Error:
    if valid is not None:
        y, want = y[valid], want[valid]
        if not len(y):
            raise OptionError("teach: a batch has no valid token")
    return (y - want).square().mean() / want.square().mean()


def _like(old: Mixer, cls: type[Mixer], max_len: int | None, given: Options) -> Mixer:
    heads = getattr(old, "heads", None)
    if not isinstance(heads, Heads) or heads.key is None:
        raise UnsupportedError(
            f"convert does not support {old.name}: it has no projections to re-use"
        )
    position = heads.rotation or getattr(old, "position", None)
    if isinstance(position, Position) and not isinstance(position, Rotary):
        raise UnsupportedError(
            f"{cls.name} does not support the {position.name} positions of the model's layers"
        )
    options = _options_like(old, cls, position, given)
    gated = heads.gate is not None and "gate" in options
    width = old.dim if gated else heads.query.out_features
    new = build(cls, dim=width, num_heads=heads.num_heads, max_len=max_len, **options)
    taken = _given_heads(old, new)
    repeats = taken.num_kv_heads // heads.num_kv_heads
    for part in ("query", "out", "gate", "query_norm", "key_norm"):
        setattr(taken, part, getattr(heads, part))
    taken.value = _repeated(heads.value, heads.num_kv_heads, repeats)
    if taken.key is not None:
        taken.key = _repeated(heads.key, heads.num_kv_heads, repeats)
    if isinstance(position, Rotary) and "position" not in options:
        taken.rotation = position
        new.declare(cross=No("rotary positions are those of one sequence"))
        if new.capabilities.streaming == "segment" or getattr(new, "sort_net", new) is None:
            new.declare(
                streaming=No(
                    "its heads turn means or memories, which a stream has at other places than forward"
                )
            )
    if getattr(new, "sinks", None) is not None and getattr(old, "sinks", None) is not None:
        new.sinks = old.sinks
    new.dim = old.dim
    return new.to(heads.query.weight)


def _options_like(old: Any, cls: type[Mixer], position: object, given: Options) -> Options:
    """The options that the new mixer has of the old one, where `given` does not say otherwise."""
    options, names = dict(given), option_names(cls)
    if isinstance(position, Rotary) and "position" in names:
        check_own("convert", given, "position", "position_options")
        options["position"] = position.name
        own = "base", "pairing", "channels"
        options["position_options"] = {name: getattr(position, name) for name in own}
    if "num_kv_heads" in names and not options.get("shared_qk"):
        options["num_kv_heads"] = old.heads.num_kv_heads
    if old.heads.gate is not None and {"gate", "head_dim"} <= {*names}:
        options |= {"gate": True, "head_dim": old.heads.head_dim}
    usual = inspect.signature(cls).parameters
    for name in {"scale", "soft_cap", "sinks"} & {*names} & old.options.keys():
        if usual[name].default in (None, False):  # as softmax has it
            options.setdefault(name, old.options[name])
    return options


def _given_heads(old: Any, new: Mixer) -> Heads:
    """The new mixer's heads, which can take over what the old one's have; raises UnsupportedError if not."""
    taken = getattr(new, "heads", None)
    if not isinstance(taken, Heads):
        raise UnsupportedError(
            f"{new.name} does not support convert: it has no queries, keys and values"
        )
    if old.heads.gate is not None and taken.gate is None:
        raise UnsupportedError(
            f"{new.name} does not support convert of layers with an output gate, which it would lose"
        )
    if new.beside_heads and new.dim != old.dim and new.name != "longformer":
        raise UnsupportedError(
            f"{new.name} does not support convert with heads of {new.dim} channels for tokens of {old.dim}: it needs the "
            f"tokens themselves as well, for {new.beside_heads}"
        )
    return taken


def _repeated(layer: nn.Linear, num_groups: int, repeats: int) -> nn.Linear:
    if repeats == 1:
        return layer

    def heads(z: Tensor) -> Tensor:
        return z.detach().unflatten(0, (num_groups, -1)).repeat_interleave(repeats, 0).flatten(0, 1)

    return linear(heads(layer.weight), None if layer.bias is None else heads(layer.bias))


def _tiled(place: nn.Embedding, offset: int, max_len: int) -> nn.Embedding:
    """The table with its rows repeated from the first position on, up to max_len; its first `offset` rows stay."""
    first, rows = place.weight.detach().tensor_split([offset])
    if max_len <= len(rows):
        return place
    copies = rows.repeat(-(-max_len // len(rows)), 1)[:max_len]
    return nn.Embedding.from_pretrained(torch.cat([first, copies]), freeze=False)
