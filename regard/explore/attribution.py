"""Attributions: which tokens an output is owed to, by five methods; none of them is a proof, and `agreement` says how far they differ.

    rollout(maps)                        products of the layers' weights with a residual share (Abnar & Zuidema 2020, arXiv 2005.00928)
    flow(maps, query=...)                maximum flows through the same layers (the same paper)
    gradient_times_attention(model, ..)  A * dF/dA, summed over layers, heads and queries
    integrated_gradients(model, ...)     (x - x') * mean dF/dx between a baseline x' and x (Sundararajan et al. 2017, arXiv 1703.01365)
    leave_one_out(model, ...)            F(x) - F(x without the token)

F is one logit: `answer(output, valid)` gives logits [B C] (by default the model's own, of the last valid token where there is
one for each), and `label` the class, by default the largest for the whole input.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, NamedTuple

import torch
from einops import reduce
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from regard.core import (
    Count,
    OptionError,
    Options,
    Rate,
    ShapeError,
    UnsupportedError,
    Weights,
    Whole,
    existing,
    is_dense,
    shown,
)
from regard.explore.readout import check_taken, kind_of, require_calls, validity
from regard.explore.statistics import below_one
from regard.functional.rows import grouped
from regard.models.generation import evaluating, last_valid
from regard.models.tokens import Hidden, Tokens, Valid
from regard.nn.gated import GatedUnit
from regard.nn.heads import Heads, Values
from regard.nn.recorded import Call, recorded

Answer = Callable[[Tensor, Tensor | None], Tensor]
PerToken = Float[Tensor, "B T"]
Maps = Sequence[Float[Tensor, "B H T T"]]
Pooled = Literal["mean", "max", "min"]

# ---------------------------------------------------------------------- of maps alone


def rollout(
    maps: Maps, *, heads: Pooled = "mean", residual: Rate = 0.5, normalise: bool = False
) -> Float[Tensor, "B T T"]:
    """R = A_L ... A_1 with A_l = (1 - residual) P_l + residual I, rows sum to 1: the share of each input token in each position.

    maps: the lowest layer's first. A query that sees nothing keeps its own token. normalise: take rows of magnitudes
    that sum to 1, for weights that do not; they are refused otherwise. Values, projections and feed-forward layers are ignored.
    """
    mixed = _stochastic("rollout", maps, heads, residual, normalise)
    total = mixed[0]
    for layer in mixed[1:]:
        total = layer @ total
    return total


def flow(
    maps: Maps,
    *,
    query: Whole = -1,
    heads: Pooled = "mean",
    residual: Rate = 0.5,
    normalise: bool = False,
) -> PerToken:
    """Maximum flow from each input token to the last layer's `query`, edges having the capacities of `rollout`'s A_l.

    residual: share of a layer's output that passes it by, 0 to 1. T maximum flows through L T^2 edges for each row: for
    short inputs.
    Raises OptionError for a query that there is not, and what `rollout` raises.
    """
    import networkx  # comes with torch, and is slow to import

    mixed = [
        layer.double().cpu() for layer in _stochastic("flow", maps, heads, residual, normalise)
    ]
    B, T = mixed[0].shape[:2]
    if not -T <= query < T:
        raise OptionError(f"flow: query ({query}) must be one of the {T} tokens, counted from 0")
    found = torch.zeros(B, T, dtype=torch.float64)
    for row in range(B):
        graph = networkx.DiGraph()
        graph.add_nodes_from((0, token) for token in range(T))
        for depth, layer in enumerate(mixed):
            for to, origin in layer[row].nonzero().tolist():
                capacity = layer[row, to, origin].item()
                graph.add_edge((depth, origin), (depth + 1, to), capacity=capacity)
        sink = (len(mixed), query % T)
        for token in range(T):
            found[row, token] = networkx.maximum_flow_value(graph, (0, token), sink)
    return found.to(maps[0])


def _stochastic(
    who: str, maps: Sequence[Tensor], heads: str, residual: float, normalise: bool
) -> list[Tensor]:
    if len(maps) == 0:
        raise OptionError(f"{who}: maps must hold one layer or more")
    shapes = {(len(z), *z.shape[2:], z.dtype) for z in maps}
    if len(shapes) > 1:
        raise ShapeError(
            f"{who}: maps must be of one batch, length and type, got [B, T, T, type] of {shapes}"
        )
    mixed = []
    for depth, weights in enumerate(maps):
        if not normalise and (kind := kind_of(weights)) != "stochastic":
            raise UnsupportedError(
                f"{who} does not support {kind} weights (maps[{depth}]): their rows do not sum to 1. "
                "Pass normalise=True to take rows of magnitudes that do."
            )
        if not weights.isfinite().all():
            raise OptionError(f"{who}: maps[{depth}] must hold finite numbers")
        one = reduce(below_one(weights, 1, 3), "b h t s -> b t s", heads)
        total = one.sum(-1, keepdim=True)
        own = torch.eye(one.shape[-1], dtype=one.dtype, device=one.device)
        one = one / total.clamp(min=torch.finfo(one.dtype).tiny)
        one = (1 - residual) * one + residual * own
        mixed.append(torch.where(total > 0, one, own))
    return mixed


# ---------------------------------------------------------------------- of a model


def last_logits(output: Tensor, valid: Valid) -> Float[Tensor, "B C"]:
    """Logits [B C] as they are, or of [B T C] those of the last valid token. Raises ShapeError for any other output."""
    if not is_dense(output) or not output.numel() or output.ndim not in (2, 3):
        raise ShapeError(
            f"the model's output must be logits [B C] or [B T C], got {shown(output)}. Pass answer=, which makes logits [B C] of it."
        )
    if output.ndim == 2:
        return output
    if valid is not None and len(valid) != len(output):
        raise ShapeError(f"valid has {len(valid)} rows, the model's output {len(output)}")
    aligned = valid is not None and valid.shape[1] == output.shape[1]
    return last_valid(output, valid if aligned else None)


def _answered(model: nn.Module, kwargs: Options, valid: Valid) -> Valid:
    """The validity of the tokens that logits are of: a translator's are the target's."""
    translates = "target_valid" in inspect.signature(model.forward).parameters
    return kwargs.get("target_valid") if translates else valid


class Gradients(NamedTuple):
    """scores [B T] of tokens; gap [B]: their sum less F(x) - F(x'), which is 0 for enough steps."""

    scores: PerToken
    gap: Float[Tensor, "B"]


def integrated_gradients(
    model: nn.Module,
    tokens: Tokens,
    *args: Any,
    answer: Answer = last_logits,
    label: Count | None = None,
    baseline: Count | None = None,
    steps: int = 32,
    **kwargs: Any,
) -> Gradients:
    """Integrated gradients of the tokens' embeddings by the midpoint rule, each token's channels summed.

    label: the logit that is explained; None: the largest.
    Of two tables in which the same ids are looked up, the first is taken for that of the tokens.
    baseline: a token id whose embedding is x' everywhere (padding, a mask); zeros by default. Raise `steps` until the gap
    is small. Raises UnsupportedError where the model looks tokens up in no nn.Embedding, OptionError for a baseline that it does not know.
    """
    if torch.is_inference_mode_enabled():
        raise UnsupportedError(
            "integrated_gradients does not support torch.inference_mode, which records nothing. Leave it first"
        )
    valid = validity(kwargs)
    check_taken(model, tokens, *args, **kwargs)
    with evaluating(model):
        with torch.no_grad():
            with _looked_up(model, tokens, valid) as tables:
                of = _answered(model, kwargs, valid)
                chosen = _chosen(answer(model(tokens, *args, **kwargs), of), label)
            if not tables:
                raise UnsupportedError(
                    f"integrated_gradients does not support {type(model).__name__}: it looks its tokens up in no nn.Embedding"
                )
            known = tokens if valid is None else tokens.masked_fill(~valid.bool(), 0)
            x = tables[0](known)
            start = total = torch.zeros_like(x)
            if baseline is not None:
                if baseline >= (size := tables[0].num_embeddings):
                    raise OptionError(
                        f"integrated_gradients: baseline ({baseline}) must be below {size}"
                    )
                start = tables[0](torch.full_like(tokens, baseline))

        def value(point: Tensor) -> tuple[Tensor, Tensor]:
            """F, where the tokens are looked up as `point`, and its gradient."""
            point = point.detach().requires_grad_()
            with torch.enable_grad(), _looked_up(model, tokens, valid, point) as tables:
                y = answer(model(tokens, *args, **kwargs), of).gather(1, chosen)[:, 0]
                tables.clear()  # what the backward computes again looks them up again
                return y.detach(), torch.autograd.grad(y.sum(), point)[0]

        for step in range(steps):
            total = total + value(start + (step + 0.5) / steps * (x - start))[1]
        scores = ((x - start) * total / steps).sum(-1)
        gap = scores.flatten(1).sum(1) - (value(x)[0] - value(start)[0])
    return Gradients(scores, gap)


def gradient_times_attention(
    model: nn.Module,
    *args: Any,
    answer: Answer = last_logits,
    label: Count | None = None,
    **kwargs: Any,
) -> list[Weights]:
    """A * dF/dA for each call of a mixer, in their order; of a layer's tokens, sum over layers, heads and queries.

    dF/dA_ts = <dF/d mixed_t, value_s>, so that it needs no kernel that forms A. Columns of external tokens are left out.
    F: the logit of `label` (None: the largest).
    Raises UnsupportedError, with the mechanism's name, where there are no weights or no mixer, or mixed is not weights @ values.
    """
    check_taken(model, *args, **kwargs)
    with evaluating(model), torch.enable_grad():
        with recorded(model) as calls:
            logits = answer(model(*args, **kwargs), _answered(model, kwargs, kwargs.get("valid")))
        require_calls("gradient_times_attention", model, calls)
        for call in calls:
            call.mixer.require("attention_map")
            if not call.y.requires_grad:
                raise UnsupportedError(
                    f"gradient_times_attention does not support {type(model).__name__} here: no gradient reaches the outputs of "
                    f"its {call.mixer.name}, as in frozen models, and where layers are computed again in the backward"
                )
        value = logits.gather(1, _chosen(logits, label)).sum()
        gradients = torch.autograd.grad(value, [call.y for call in calls], allow_unused=True)
        return [_product(*both) for both in zip(calls, gradients, strict=True)]


def _product(call: Call, gradient: Hidden | None) -> Weights:
    """A * dF/dA: the output's gradient goes back through the part of the mixer that projects what was mixed."""
    parts = (m for m in call.mixer.modules() if isinstance(m, Heads | Values | GatedUnit))
    if (owner := next(parts, None)) is None:
        raise UnsupportedError(
            f"gradient_times_attention does not support {call.mixer.name}: what it mixes does not pass through heads"
        )
    with torch.no_grad():
        seen: Any = call.mixer.observe(call.x, context=call.context, mask=call.mask)
        S = seen.v.shape[2]
        weights = seen.weights[..., -S:]
        v = grouped(seen.v, weights.shape[1])
    if gradient is None:  # the answer does not depend on this layer
        return torch.zeros_like(weights)
    mixed = (weights @ v).requires_grad_()
    if isinstance(owner, GatedUnit):
        y = owner.merge(call.x, mixed)
    else:
        y = owner.merge(mixed, call.x) if isinstance(owner, Heads) else owner.merge(mixed)
    if seen.weights.shape[-1] == S:
        rounding = max(1e-3, 4 * torch.finfo(y.dtype).eps) * y.abs().amax().clamp(min=1e-30)
        unlike = (y - call.y).abs().amax(-1) > rounding
        if (unlike & (call.y != 0).any(-1)).any():  # a query that sees nothing is given zeros
            raise UnsupportedError(
                f"gradient_times_attention does not support {call.mixer.name} here: some of its queries read other values"
            )
    (gradient,) = torch.autograd.grad(y, mixed, gradient)
    return weights * (gradient @ v.mT)


def leave_one_out(
    model: nn.Module,
    tokens: Tokens,
    *args: Any,
    answer: Answer = last_logits,
    label: Count | None = None,
    chunk: int = 32,
    **kwargs: Any,
) -> PerToken:
    """F(x) - F(x without token t), where the token is as if absent (`valid` of the model); zero for padding.

    F: the logit of `label` (None: the largest). chunk: shortened inputs at a time. Raises UnsupportedError where a mixer supports no padding, and ShapeError for tokens that are not [B T], and others that have not a row for each.
    """
    B, T = tokens.shape
    valid = existing(tokens, kwargs.pop("valid", None))
    check_taken(model, tokens, *args, valid=valid, **kwargs)
    if not isinstance(valid, Tensor):
        raise ShapeError(f"leave_one_out: valid must be a tensor [B, T], got {shown(valid)}")
    for z in tree_leaves((valid, args, kwargs)):
        if isinstance(z, Tensor) and (not z.ndim or len(z) != B):
            raise ShapeError(
                f"leave_one_out: tensors must have {B} rows, as tokens, got {shown(z)}"
            )
    scores = []
    with evaluating(model), torch.no_grad():
        for row in range(B):

            def values(shown: Tensor, row: int = row) -> Tensor:
                own, rest = tree_map_only(
                    Tensor,
                    lambda z: z[row].expand(len(shown), *z.shape[1:]),
                    ((tokens, *args), kwargs),
                )
                return answer(model(*own, valid=shown, **rest), _answered(model, rest, shown))

            whole = values(valid[row : row + 1])
            chosen = _chosen(whole, label)[0, 0]
            without = valid[row] & ~torch.eye(T, dtype=torch.bool, device=tokens.device)
            parts = [values(part)[:, chosen] for part in without.split(chunk)]
            scores.append(torch.where(valid[row], whole[0, chosen] - torch.cat(parts), 0))
    return torch.stack(scores)


def _chosen(logits: Tensor, label: int | None) -> Int[Tensor, "B 1"]:
    if logits.ndim != 2:
        raise ShapeError(f"answer must give logits [B C], got {list(logits.shape)}")
    if label is None:
        return logits.argmax(1, keepdim=True)
    if label >= logits.shape[1]:
        raise OptionError(f"label ({label}) must be one of {logits.shape[1]} classes, from 0")
    return torch.full_like(logits[:, :1], label, dtype=torch.long)


@contextmanager
def _looked_up(
    model: nn.Module, tokens: Tensor, valid: Valid, point: Tensor | None = None
) -> Iterator[list[nn.Embedding]]:
    """While open, the first look-up of these tokens gives `point`, where that is given; its table enters the list."""
    seen = list[nn.Embedding]()

    def note(table: nn.Embedding, ids: tuple[Tensor], y: Tensor) -> Tensor | None:
        if seen or ids[0].numel() != tokens.numel():
            return None
        unlike = ids[0].reshape(tokens.shape) != tokens
        if (unlike if valid is None else unlike & valid).any():
            return None
        seen.append(table)
        return None if point is None else point.view_as(y)

    with ExitStack() as hooks:
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                hooks.enter_context(module.register_forward_hook(note))
        yield seen
