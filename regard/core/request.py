"""A request x, context, mask: checked once, compacted, and its results moved back to the caller's order.

Compact rows hold their valid tokens first, and zeros behind them, so that kernels see right padding only. An empty batch is
computed as one row of absent tokens, of which nothing is kept: outputs stay connected to input and parameters, whose
gradients are zero, so that every process of a distributed run takes part in a backward.
"""

from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn.functional import embedding

from regard.core.errors import ShapeError, UnsupportedError, outline
from regard.core.mask import NUMBERS, Mask, check_integers
from regard.core.shapes import Marks, Mixed, Queries, Tokens, Weights, in_parts, is_dense, layout

Frozen = TypeVar("Frozen")
Rows = Shaped[Tensor, "B S D"]
Columns = Int[Tensor, "B S"]


def check_tokens(who: str, name: str, x: Any, dim: int, weight: Tensor | None = None) -> None:
    """x must be a floating tensor [B, T >= 1, dim], where the module's weight is (None: it has no weight), and of its type."""
    if not isinstance(x, Tensor):
        raise ShapeError(f"{who}: {name} must be a tensor [B, T, {dim}], got {type(x).__name__}")
    if x.layout != torch.strided or x.is_nested:
        raise ShapeError(
            f"{who}: {name} must be dense, got {layout(x)}. Use .to_dense(), or pad what is nested."
        )
    shape = x.shape
    if len(shape) != 3 or shape[2] != dim:
        raise ShapeError(f"{who}: {name} must have shape [B, T, {dim}], got {list(shape)}")
    if shape[1] < 1:
        raise ShapeError(f"{who}: {name} must hold at least one token, got {list(shape)}")
    if not x.is_floating_point() or x.itemsize < 2:
        raise ShapeError(
            f"{who}: {name} must be floating point of 16 bits or more, got {x.dtype}. Embed token ids first."
        )
    if weight is not None and (weight.dtype != x.dtype or weight.device != x.device):
        check_place(who, name, x, weight)


def check_place(who: str, name: str, x: Tensor, weight: Tensor | None) -> None:
    """x must be where the module's weight is, and of its type, if that is a floating one (None: it has no weight)."""
    if weight is None or torch.compiler.is_compiling():
        return
    if weight.device != x.device:
        raise ShapeError(
            f"{who}: {name} is on {x.device}, the module on {weight.device}. Move one of them."
        )
    unlike = weight.is_floating_point() and weight.dtype != x.dtype
    if unlike and not torch.is_autocast_enabled(x.device.type):
        raise ShapeError(
            f"{who}: {name} has dtype {x.dtype}, the module {weight.dtype}. Convert one, or use autocast."
        )


def marks(what: str, given: Tensor) -> Tensor:
    """True at a token. Raises ShapeError for what is neither boolean nor 0 and 1 alone; on meta nothing can be read."""
    if not is_dense(given) or not (
        given.dtype == torch.bool or given.is_meta or bool(((given == 0) | (given == 1)).all())
    ):
        raise ShapeError(f"{what} must be boolean or hold 0 and 1 alone, 1 at a token")
    return given == 1


def existing(tokens: Shaped[Tensor, "*b"], valid: Bool[Tensor, "*b"] | None) -> Bool[Tensor, "*b"]:
    """Marks the tokens that there are: all, where `valid` is None."""
    return torch.ones_like(tokens, dtype=torch.bool) if valid is None else valid


def first_parameter(module: nn.Module) -> Tensor | None:
    """The module's first parameter, without the sets of names that `module.parameters()` builds: they slow a decoding step."""
    for parameter in module._parameters.values():
        if parameter is not None:
            return parameter
    for child in module._modules.values():
        found = None if child is None else first_parameter(child)
        if found is not None:
            return found
    return None


def check_request(mixer: Any, x: Tensor, context: Tensor | None, mask: object) -> None:
    """Raise ShapeError for what does not fit, UnsupportedError for what the mixer declares that it cannot do."""
    who = mixer.name
    if not isinstance(mask, Mask):
        raise ShapeError(
            f"{who}: mask must be a regard.Mask, got {type(mask).__name__}. Mask(valid=...)?"
        )
    if mask.compact or mask.shift is not None:
        raise ShapeError(
            f"{who}: mask.compact and mask.shift are filled in by the mixer. Leave them out: valid says which "
            "tokens there are, on any side."
        )
    check_tokens(who, "x", x, mixer.dim, first_parameter(mixer))
    B, T, _ = x.shape
    if mixer.max_len is not None and T > mixer.max_len and mask.documents is None:
        mixer._check_length("length", T)
    asked = {
        "causal": mask.causal,
        "bidirectional": not mask.causal,
        "padding": mask.valid is not None,
        "pairwise": mask.pairwise is not None,
        "global_tokens": mask.global_tokens is not None,
    }
    for what, is_asked in asked.items():
        if is_asked and not getattr(mixer.capabilities, what):
            mixer.require(what)
    if mask.pairwise is not None and mask.pairwise.shape[1:2] > (1,):
        if not in_parts(mixer) and any(hasattr(z, "placements") for z in mixer.parameters()):
            raise UnsupportedError(
                f"{who} does not support pairs of each head where processes share its heads: give mask.pairwise one head for all"
            )
    if context is not None:
        _check_context(mixer, B, context, mask)
    S = T if context is None else context.shape[1]
    check_mask(who, mask, B, T, S, getattr(mixer, "num_heads", None), device=x.device)


def documents_with_context(who: str) -> UnsupportedError:
    return UnsupportedError(
        f"{who} does not support documents with a context: they are of the tokens that are mixed. Give each document "
        "as a row, with its own context."
    )


def _check_context(mixer: Any, B: int, context: Tensor, mask: Mask) -> None:
    who = mixer.name
    mixer.require("cross")
    if mask.documents is not None:
        raise documents_with_context(who)
    if mask.global_tokens is not None:
        raise ShapeError(
            f"{who}: global_tokens are tokens of x, and a context was given. Leave one out."
        )
    mixer._check_tokens("context", context)
    if context.shape[0] != B:
        raise ShapeError(f"{who}: context has batch {context.shape[0]}, x has batch {B}")
    mixer._check_length("context length", context.shape[1])


def check_mask(
    who: str, mask: Mask, B: int, T: int, S: int, H: int | None = None, *, device: torch.device
) -> None:
    """Raise ShapeError, naming the field, unless every tensor has its type, fits and is on the device."""
    for name in ("valid", "pairwise", "global_tokens", "documents"):
        value = getattr(mask, name)
        if value is None:
            continue
        if name in NUMBERS:
            check_integers(f"{who}: mask.{name}", value, 2)
        elif value.dtype != torch.bool:
            raise ShapeError(
                f"{who}: mask.{name} must be a boolean tensor (True = may take part), got {value.dtype}"
            )
        if value.layout != torch.strided or value.is_nested:
            raise ShapeError(f"{who}: mask.{name} must be dense, got {layout(value)}")
        if value.device != device:
            raise ShapeError(
                f"{who}: mask.{name} is on {value.device}, the tokens on {device}. Move one of them."
            )
        if name == "pairwise":
            heads = sorted({1, H or 1})
            fits = value.ndim == 4 and value.shape[0] in (1, B) and value.shape[1] in heads
            if not fits or value.shape[2:] != (T, S):
                want = f"[{B}|1, {'|'.join(map(str, reversed(heads)))}, {T}, {S}]"
                raise ShapeError(
                    f"{who}: mask.pairwise must have shape {want}, got {list(value.shape)}"
                )
        elif value.shape != (B, S):
            raise ShapeError(
                f"{who}: mask.{name} must have shape [{B}, {S}], got {list(value.shape)}"
            )


class Observation(NamedTuple):
    """The tensors that one forward used, as far as the mechanism has them."""

    q: Queries | None = None
    k: Float[Tensor, "B G S K"] | None = None
    v: Float[Tensor, "B G S V"] | None = None
    weights: Weights | None = None
    heads: Mixed | None = None

    def __repr__(self) -> str:
        return f"Observation({outline(self._asdict())})"


class Compaction(NamedTuple):
    """The stable permutation that puts valid tokens first."""

    source: Columns  # column c of the compact row comes from column source[c]
    target: Columns  # column s of the given row goes to column target[s]
    valid: Marks  # of the compact row

    def of(self, x: Rows) -> Rows:
        """The rows in compact order, zero where there is no token."""
        return torch.where(self.valid[..., None], permute(x, self.source), 0)


def compaction(valid: Marks) -> Compaction:
    count = valid.sum(1, keepdim=True)
    target = torch.where(valid, valid.cumsum(1) - 1, count + (~valid).cumsum(1) - 1)
    columns = torch.arange(valid.shape[1], device=valid.device).expand_as(target)
    source = torch.empty_like(target).scatter_(1, target, columns)
    return Compaction(source, target, columns < count)


def permute(
    x: Shaped[Tensor, "b *axes"], order: Columns, dim: int = 1
) -> Shaped[Tensor, "B *axes"]:
    """Take entries along `dim` in the order given for each row of the batch."""
    if x.shape[0] != order.shape[0]:
        x = x.expand(order.shape[0], *x.shape[1:])
    if (
        x.ndim == 3 and dim == 1 and x.is_floating_point()
    ):  # a seventh of the time of gather's backward
        first = x.shape[1] * torch.arange(x.shape[0], device=x.device)
        return embedding(order + first[:, None], x.flatten(0, 1))
    index = order.reshape(
        order.shape[0], *(order.shape[1] if d == dim else 1 for d in range(1, x.ndim))
    )
    return x.gather(dim, index.expand_as(x))


def clear(x: Rows, valid: Marks) -> Rows:
    return torch.where(valid[..., None], x, 0)


def with_facts(value: Frozen, **facts: Any) -> Frozen:
    """The same fields in a new value of a frozen class, and these facts, without its checks."""
    made = object.__new__(type(value))
    vars(made).update(vars(value), **facts)
    return made


class Request(NamedTuple):
    """A compact request, and the permutations back to the caller's order."""

    x: Tensor
    context: Tensor | None
    mask: Mask
    queries: Compaction | None  # how the rows of x were moved
    keys: Compaction | None  # how the rows of x, or of the context, were moved
    answered: Tensor | None  # [B T]: queries that are valid and see at least one key
    empty: bool = False  # the batch has no rows, and this one is computed in their place

    def restore_output(self, y: Tokens) -> Tokens:
        if self.empty:
            return y[:0]
        if self.answered is not None:
            y = torch.where(self.answered[..., None], y, 0)
        return y if self.queries is None else permute(y, self.queries.target)

    def restore_observation(self, found: Observation) -> Observation:
        if self.empty:
            return Observation(*(None if z is None else z[:0] for z in found))
        weights = found.weights
        if weights is not None and self.answered is not None:
            weights = torch.where(self.answered[:, None, :, None], weights, 0)
        return Observation(
            q=_restored(found.q, self.queries),
            k=_restored(found.k, self.keys),
            v=_restored(found.v, self.keys),
            weights=None if weights is None else restored_weights(weights, self.queries, self.keys),
            heads=_restored(found.heads, self.queries),
        )


def restored_weights(
    weights: Weights, queries: Compaction | None, keys: Compaction | None
) -> Weights:
    """The weights in the caller's order; columns before those of the keys, of external tokens, stay in place."""
    weights = _restored(weights, queries)
    if keys is None:
        return weights
    prefix, tokens = weights.tensor_split([-keys.target.shape[1]], 3)
    return torch.cat([prefix, _restored(tokens.transpose(2, 3), keys).transpose(2, 3)], 3)


def _restored(z: Any, order: Compaction | None) -> Any:
    if z is None or order is None:
        return z
    z = torch.where(order.valid[:, None, :, None], z, 0)
    return permute(z, order.target, 2)


def compacted(mixer: Any, x: Tensor, context: Tensor | None, mask: Mask) -> Request:
    """The row that stands for an empty batch is of absent tokens, where the mixer serves padding."""
    if x.shape[0] == 0:
        row = one_row_mask(mixer, mask, x if context is None else context)
        context = None if context is None else one_row(context)
        return compacted(mixer, one_row(x), context, row)._replace(empty=True)
    queries = keys = None
    if mask.valid is not None:
        keys = compaction(mask.valid)
        pairwise = mask.pairwise
        marks = mask.global_tokens
        shift = None
        if context is None:
            queries, x = keys, keys.of(x)
        else:
            context = keys.of(context)
            shift = keys.valid.sum(1) - x.shape[1] if mask.causal else None
        if pairwise is not None:
            pairwise = permute(pairwise, keys.source, 3)
            pairwise = pairwise if queries is None else permute(pairwise, queries.source, 2)
        if marks is not None:
            marks = permute(marks, keys.source) & keys.valid
        mask = with_facts(
            mask,
            valid=keys.valid,
            pairwise=pairwise,
            global_tokens=marks,
            shift=shift,
            compact=True,
        )
    T = x.shape[1]
    S = T if context is None else context.shape[1]
    answered = None
    if context is None:
        answered = mask.valid
    elif mask.causal and (T > S or mask.valid is not None):
        answered = mask.last_key(T, S, x.device) >= 0
    elif mask.valid is not None:
        answered = mask.valid.any(1, keepdim=True)
    if mask.pairwise is not None:
        allowed = mask.dense(T, S, device=x.device).any(-1).any(1)
        answered = allowed if answered is None else answered & allowed
    answered = None if answered is None else answered.expand(x.shape[0], T)
    return Request(x, context, mask, queries, keys, answered)


def one_row(z: Tensor, fill: float | bool = 0) -> Tensor:
    """[0 ...] -> [1 ...], of one value."""
    return torch.cat([z, z.new_full((1, *z.shape[1:]), fill)])


def one_row_mask(mixer: Any, mask: Mask, keys: Tensor) -> Mask:
    """The mask of the row; its keys [0 S D] are absent, where the mixer serves padding."""
    absent = keys.new_zeros(1, keys.shape[1], dtype=torch.bool)
    valid = absent if mixer.capabilities.padding else None
    marks, pairwise = mask.global_tokens, mask.pairwise
    if pairwise is not None and pairwise.shape[0] == 0:
        pairwise = one_row(pairwise, True)
    return Mask(mask.causal, valid, pairwise, None if marks is None else one_row(marks))
