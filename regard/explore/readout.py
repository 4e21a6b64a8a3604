"""A mechanism's weights or influence, by one function for all of them, and those of every layer of a model.

    readout(mixer, x)              weights [B H T S] of the real code where it has some, else the influence
    influence(function, x)         |dy_t / dx_s|, the Frobenius norms of the Jacobian's blocks, [B T S]
    layers(model, tokens)          the calls of its mixers in one forward, with the readout of each

Weights are those that reproduce the output: mixed_t = sum_s weights_ts values_s, closed forms of kernel methods among them. A mechanism
without such weights (FNet, MLP-Mixer) has its influence alone; of every other one it can be asked for, and it is the
only measure in which all of them can be compared: it counts what passes through gates, values and projections too.

A decoder of `regard.models.Transformer` moves valid target tokens to the front; its readouts are moved back.
"""

import inspect
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import (
    OPEN,
    Context,
    Mask,
    Mixer,
    OptionError,
    Options,
    OtherTokens,
    Seed,
    TensorMap,
    UnsupportedError,
    Weights,
    check_option,
    compaction,
    restored_weights,
)
from regard.models import Transformer
from regard.models.generation import evaluating
from regard.models.tokens import Hidden
from regard.nn.recorded import Call, recorded

Kind = Literal["stochastic", "nonnegative", "signed", "influence"]
"""stochastic: rows sum to 1, or to 0 where a query sees nothing. influence: norms, which have no common scale."""

Measure = Literal["auto", "weights", "influence"]

FIRST = ("valid", "first_valid", "source_valid")
SECOND = ("second_valid", "target_valid")
"""Names that models have for what is valid of their first and of their second argument."""

ROOM = 2**25
"""Numbers that one chunk of cotangents may take, counted as [chunk B H T S]."""


class Readout(NamedTuple):
    """values [B H T S]; the first `prefix` columns are external tokens, which are no tokens of the input."""

    values: Weights
    kind: Kind
    prefix: int = 0


@torch.no_grad()
def readout(
    mixer: Mixer,
    x: Hidden,
    *,
    context: Context = None,
    mask: Mask = OPEN,
    measure: Measure = "auto",
    probes: int | None = None,
    seed: Seed = 0,
) -> Readout:
    """Weights of the mixer's own code, or its influence, which has one head; zero where a token is invalid or a pair not allowed.

    measure: "auto" takes weights where there are some. probes, seed: as in `influence`. Raises UnsupportedError, with the
    reason, for measure="weights" of a mechanism without weights, OptionError for another measure, and whatever `forward` raises.
    """
    source = x if context is None else context
    if measure == "weights" or (measure == "auto" and mixer.capabilities.attention_map):
        weights = mixer.attention_map(x, context=context, mask=mask)
        return Readout(weights, kind_of(weights), weights.shape[3] - source.shape[1])

    def mixed(z: Tensor) -> Tensor:
        return mixer(z, mask=mask) if context is None else mixer(x, context=z, mask=mask)

    return Readout(influence(mixed, source, probes=probes, seed=seed)[:, None], "influence")


def kind_of(weights: Weights) -> Kind:
    """The kind of weights, by their values."""
    if (weights < 0).any():
        return "signed"
    total = weights.double().sum(-1)
    tolerance = 16 * torch.finfo(weights.dtype).eps * max(weights.shape[-1], 16)
    one_or_none = ((total - 1).abs() < tolerance) | (total == 0)
    return "stochastic" if one_or_none.all() else "nonnegative"


def influence(
    function: TensorMap,
    x: OtherTokens,
    *,
    probes: int | None = None,
    seed: Seed = 0,
    chunk: int | None = None,
) -> Float[Tensor, "B T S"]:
    """Frobenius norms |dy_t / dx_s| of y [B T E] = function(x), whose rows of the batch must not mix.

    By default exact: one backward for each number of y. With `probes`, the root of a mean over so many random directions
    of y_t instead (Rademacher, from `seed`), whose square is an unbiased estimate of the norm's square. chunk: backwards
    at a time. Raises ShapeError where function(x) is anything else.
    """
    from torch.func import vjp, vmap

    def read(z: Tensor) -> Tensor:
        y = function(z)
        check_option("influence", "function(x)", y, Float[Tensor, f"{len(x)} T E"])
        return y

    y, backward = vjp(read, x.detach())  # type: ignore[misc]  # two values without has_aux
    B, T, E = y.shape
    S = x.shape[1]
    if probes is None:
        directions = torch.eye(E).to(y)  # [n E]
    else:
        generator = torch.Generator().manual_seed(seed)
        directions = (2 * torch.randint(0, 2, (probes, E), generator=generator) - 1).to(y)
    n = len(directions)
    chunk = chunk or max(1, min(T * n, ROOM // max(1, B * max(T * S, T * E))))
    squares = x.new_zeros(T, B, S)
    for rows in torch.arange(T * n, device=x.device).split(chunk):
        token = rows // n
        given = y.new_zeros(len(rows), B, T, E)
        given[torch.arange(len(rows), device=x.device), :, token] = directions[rows % n][:, None]
        (gradient,) = vmap(backward)(given)
        squares.index_add_(0, token, gradient.square().sum(-1).detach())
    return (squares / (1 if probes is None else n)).sqrt().transpose(0, 1)


class Layer(NamedTuple):
    """A call of a mixer and what it attends with. path: the mixer's name in the model. time: number of the call, from 0."""

    path: str
    time: int
    mixer: Mixer
    cross: bool
    found: Readout


def require_calls(who: str, model: nn.Module, calls: Sequence[Call]) -> None:
    """Raises UnsupportedError where the model has called no mixer."""
    if not calls:
        raise UnsupportedError(
            f"{who} does not support {type(model).__name__}: none of its mixers was called. "
            "HAN, DIN, AutoInt and MMoE have read, weights and attention_maps; regard.explore.page shows them."
        )


def validity(kwargs: Options, names: Sequence[str] = FIRST) -> Tensor | None:
    return next((kwargs[name] for name in names if kwargs.get(name) is not None), None)


def check_taken(model: nn.Module, *args: Any, **kwargs: Any) -> None:
    """Raises OptionError for arguments that the model's forward does not take."""
    try:
        inspect.signature(model.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise OptionError(
            f"{type(model).__name__}: {error}. Give what its forward takes."
        ) from None


@torch.no_grad()
def layers(
    model: nn.Module,
    *args: Any,
    measure: Measure = "auto",
    probes: int | None = None,
    seed: Seed = 0,
    **kwargs: Any,
) -> list[Layer]:
    """The readout of each mixer's call in model(*args, **kwargs), in the order of the calls; the model is put in evaluation mode meanwhile.

    measure, probes, seed: as in `readout`. Raises OptionError for arguments that its forward does not take, UnsupportedError where the
    model has no mixer.
    """
    with evaluating(model):
        check_taken(model, *args, **kwargs)
        with recorded(model) as calls:
            model(*args, **kwargs)
        require_calls("layers", model, calls)
        moved = kwargs.get("target_valid") if isinstance(model, Transformer) else None
        read = []
        for path, time, mixer, x, context, mask, _ in calls:
            cross = context is not None
            found = readout(
                mixer, x, context=context, mask=mask, measure=measure, probes=probes, seed=seed
            )
            if moved is not None and path.startswith("decoder."):
                order = compaction(moved)
                values = restored_weights(found.values, order, None if cross else order)
                found = found._replace(values=values)
            read.append(Layer(path, time, mixer, cross, found))
        return read
