"""MultiheadAttention: any mixer over queries, keys and values behind the call and the state dict of torch's own layer.

    layer.self_attn = MultiheadAttention.replacing(layer.self_attn, regard.build("linear", dim=512, num_heads=8))
    layer = MultiheadAttention(512, 8, batch_first=True, mixer=regard.build("linear", dim=512, num_heads=8))

The projections are torch's (`in_proj_weight`, `in_proj_bias`, `out_proj`); what the mixer has besides is stored under
`mixer.`. With `softmax` the outputs are those of torch, except where `key_padding_mask` hides the query itself: there
the mixture is zero, and where a query may see nothing: zero again, and not NaN.
"""

from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from regard.core import (
    CheckedOptions,
    Marks,
    Mask,
    Mixer,
    OptionError,
    Rate,
    ShapeError,
    UnknownNameError,
    UnsupportedError,
    check_flag,
    check_mask,
    check_option,
    check_tokens,
    is_dense,
    is_mapped,
    marks,
    shown,
)
from regard.nn.given_heads import packed, taken_over, with_given_heads

Attended = tuple[Tensor, Tensor | None]  # outputs, and the weights that are asked for
KeyMask = Shaped[Tensor, "B S"] | None
DEVICES = ("cpu", "cuda", "mps", "xpu", "meta")

NEVER = -9e8
"""A float mask's numbers from here down hide, as -inf does: -1e9 in any type. In float16 its least number does."""


class MultiheadAttention(nn.MultiheadAttention, metaclass=CheckedOptions):
    """`torch.nn.MultiheadAttention`, by the arguments of its constructor, with the weights of `mixer`, which may also come first.

    embed_dim, num_heads: those of the mixer, or None. dropout: of weights; the mixer must have it, and 0 leaves the mixer's own.
    kdim, vdim: channels of keys and of values before their projections; None: those of the mixer.
    One tensor given as query and key is self-mixing; two are a context, which the mixer must support (`cross`).
    Raises UnsupportedError, with the reason, for a mixer that is not a function of q, k and v, and for what it cannot do.
    """

    mixer: Mixer

    def __init__(
        self,
        embed_dim: int | Mixer | None = None,
        num_heads: int | None = None,
        dropout: Rate = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        mixer: Mixer | None = None,
    ):
        _check_place(device, dtype)
        if add_bias_kv or add_zero_attn:
            raise UnsupportedError(
                "MultiheadAttention does not support add_bias_kv and add_zero_attn: they add keys that are no tokens"
            )
        if mixer is None:
            check_option("MultiheadAttention", "mixer", embed_dim, Mixer)
            mixer, embed_dim = cast(Mixer, embed_dim), None
        given = with_given_heads(mixer)
        heads: Any = given.heads
        sizes = embed_dim or mixer.dim, num_heads or heads.num_heads
        if sizes != (mixer.dim, heads.num_heads):
            raise ShapeError(
                f"MultiheadAttention: the mixer has dim {mixer.dim} and {heads.num_heads} heads, the layer "
                f"{shown(sizes[0])} and {sizes[1]}"
            )
        own: Any = mixer.heads
        channels = {len(own.query.weight), own.out.in_features}
        if heads.num_kv_heads != heads.num_heads or channels != {mixer.dim}:
            raise OptionError(
                f"MultiheadAttention: num_kv_heads ({heads.num_kv_heads}) must be num_heads ({heads.num_heads}), and the "
                f"mixer's heads must have dim / num_heads channels ({mixer.dim} / {heads.num_heads}), as in torch's layer"
            )
        dropout = taken_over(dropout, given)
        super().__init__(
            mixer.dim,
            heads.num_heads,
            dropout,
            bias,
            kdim=kdim,
            vdim=vdim,
            batch_first=batch_first,
            device=device,
            dtype=dtype,
        )
        self.mixer = given.to(device=device, dtype=dtype)
        self._qkv_same_embed_dim = False  # torch's encoder layers then leave their fast path out
        # On the meta device it draws no random numbers.
        out = _OutProjection(mixer.dim, mixer.dim, bias=bias, device="meta")
        out.weight = self.out_proj.weight
        out.bias = self.out_proj.bias
        self.out_proj = out

    def reset_parameters(self) -> None:
        """torch's start of the projections; `out_proj` and the mixer's parts have their own."""
        for name, parameter in self.named_parameters(recurse=False):
            if name == "in_proj_bias":
                nn.init.zeros_(parameter)
            else:
                nn.init.xavier_uniform_(parameter)

    @classmethod
    def replacing(cls, attention: nn.MultiheadAttention, mixer: Mixer) -> "MultiheadAttention":
        """A layer around a copy of the mixer with the parameters, the device, the order of axes and the dropout of this one.

        Raises UnsupportedError and OptionError, with the reason, for what the new layer would not do.
        """
        if type(attention) not in (nn.MultiheadAttention, MultiheadAttention):
            raise OptionError(
                "MultiheadAttention: only torch.nn.MultiheadAttention itself is replaced, got "
                f"{type(attention).__name__}: what a subclass or a parametrisation adds would be lost. Remove it first."
            )
        own = [name for name in vars(attention) if name == "forward" or "_hooks" in name]
        if hooks := [name for name in own if vars(attention)[name]]:
            raise UnsupportedError(
                f"MultiheadAttention: the layer has hooks ({', '.join(hooks)}), which would no longer run. Remove them "
                "first, and register them on the new layer."
            )
        weight = attention.out_proj.weight
        made = cls(
            attention.embed_dim,
            attention.num_heads,
            attention.dropout,
            attention.in_proj_bias is not None,
            attention.bias_k is not None,
            attention.add_zero_attn,
            attention.kdim,
            attention.vdim,
            attention.batch_first,
            weight.device,
            weight.dtype,
            mixer=mixer,
        )
        for name, parameter in attention.named_parameters(recurse=False):
            setattr(made, name, parameter)
        made.out_proj = attention.out_proj
        return made.train(attention.training)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: KeyMask = None,
        need_weights: bool = True,
        attn_mask: Shaped[Tensor, "*B T S"] | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        *,
        valid: KeyMask = None,
    ) -> Attended:
        """torch's call: a mask's True, or -inf, -1e9 and the least number of its type, hides. `is_causal` without attn_mask is the causal mask.

        Other numbers of attn_mask are added to scaled scores, where the mixer adds any: softmax. valid: in the place of
        key_padding_mask, True or 1 at a token, as Transformers gives it.
        Of nested rows, as torch's encoder makes them of a padding mask, weights [B T S] are padded with zeros to the longest.
        Raises ShapeError for masks with numbers that the mixer cannot add; OptionError for valid beside key_padding_mask; UnsupportedError
        for nested rows as a context or with masks, and for what the mixer cannot do.
        """
        check_flag(
            need_weights=need_weights,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        masks = {"key_padding_mask": key_padding_mask, "attn_mask": attn_mask, "valid": valid}
        given = {k: mask for k, mask in masks.items() if mask is not None}
        for name, x in {"query": query, "key": key, "value": value, **given}.items():
            if not isinstance(x, Tensor):
                raise ShapeError(f"MultiheadAttention: {name} must be a tensor, got {shown(x)}")
            if name in given and not (is_dense(x) and x.device == query.device):
                raise ShapeError(
                    f"MultiheadAttention: {name} must be a dense tensor on {query.device}, got {shown(x)}"
                )
        if query.is_nested:
            if query is not key or query is not value or given:
                raise UnsupportedError(
                    "MultiheadAttention does not support nested tensors as a context, nor beside masks"
                )
            return self._mix_nested(query, is_causal, need_weights, average_attn_weights)
        one_axis, batched = query is key, query.ndim == 3
        tokens = [query, key, value]
        if any(x.is_nested or x.ndim != query.ndim for x in tokens) or query.ndim not in (2, 3):
            shapes = ", ".join(shown(x) for x in tokens)
            raise ShapeError(
                f"MultiheadAttention: query, key, value must have two axes or three, got {shapes}"
            )
        if not batched:
            tokens = [x[None] for x in tokens]
            given |= {k: mask[None] for k, mask in given.items() if k != "attn_mask"}
        elif not self.batch_first:
            tokens = [x.transpose(0, 1) for x in tokens]
        found = self._masks(given, is_causal, tokens, one_axis)
        y, weights = self._mix(tokens, one_axis, *found, need_weights, average_attn_weights)
        if not batched:
            return y[0], None if weights is None else weights[0]
        return y if self.batch_first else y.transpose(0, 1), weights

    def _mix_nested(self, query: Tensor, is_causal: bool, *wanted: bool) -> Attended:
        x = query.to_padded_tensor(0.0)
        length = [len(row) for row in query.unbind()]
        inside = torch.arange(x.shape[1]) < torch.tensor(length)[:, None]
        mask = Mask(causal=is_causal, valid=inside.to(x.device))
        y, weights = self._mix([x] * 3, True, mask, None, *wanted)
        rows = [row[:n] for row, n in zip(y, length, strict=True)]
        return torch.nested.as_nested_tensor(rows, layout=query.layout), weights

    def _mix(
        self,
        tokens: list[Tensor],
        one_axis: bool,
        mask: Mask,
        added: Tensor | None,
        need_weights: bool,
        average: bool,
    ) -> Attended:
        widths = {"query": self.embed_dim, "key": self.kdim, "value": self.vdim}
        query, key, value = tokens
        for (name, width), x in zip(widths.items(), tokens, strict=True):
            check_tokens("MultiheadAttention", name, x, width, self.out_proj.weight)
        if value.shape[:2] != key.shape[:2] or len(key) != len(query):
            raise ShapeError(
                f"MultiheadAttention: query, key, value must have one batch, and a value for each key, got {shown(query)}, "
                f"{shown(key)}, {shown(value)}"
            )
        weights: tuple[Tensor, ...] = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.chunk(3)
        biases = [None] * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        q, k, v = map(F.linear, tokens, weights, biases)
        x = packed(self.mixer, q, *((k, v) if one_axis else ()))
        context = None if one_axis else packed(self.mixer, None, k, v)
        mixer = self.mixer if added is None else self.mixer.adding(added)  # type: ignore[operator]
        y = self.out_proj(mixer(x, context=context, mask=mask))
        if not need_weights:
            return y, None
        found = mixer.attention_map(x, context=context, mask=mask)
        return y, found.mean(1) if average else found

    def _masks(
        self, given: dict[str, Tensor], is_causal: bool, tokens: list[Tensor], one_axis: bool
    ) -> tuple[Mask, Float[Tensor, "b h T S"] | None]:
        """The mask, and what is added to scores; where anything is, padding is among the pairs, so that tokens keep their places."""
        B, T, S = *tokens[0].shape[:2], tokens[1].shape[1]
        valid = _valid(given)
        # else keys keep their places beside absent ones
        counted = one_axis or valid is None or T != S
        if "attn_mask" not in given:
            if counted or not is_causal:
                return Mask(causal=is_causal, valid=valid), None
            given["attn_mask"] = tokens[0].new_ones(T, S, dtype=torch.bool).triu(1)
        allowed, added = _allowed(
            "attn_mask", given["attn_mask"], adds=hasattr(self.mixer, "adding")
        )
        fits = [(T, S), (B * self.num_heads, T, S)]
        if allowed.shape not in fits:
            raise ShapeError(
                f"MultiheadAttention: attn_mask must have shape {list(fits[0])} or {list(fits[1])}, "
                f"got {list(allowed.shape)}"
            )
        read = added is None and (is_causal or (T == S and allowed.ndim == 2))
        causal = read and torch.equal(allowed, torch.ones_like(allowed).tril())
        if is_causal and not causal:
            raise ShapeError(
                "MultiheadAttention: is_causal says that attn_mask is the causal mask, and it is not. Pass one of them."
            )
        if causal and T == S and counted:
            return Mask(causal=True, valid=valid), None
        axes = (-1, 1 if allowed.ndim == 2 else self.num_heads, T, S)
        pairs = allowed.view(axes)
        if added is None:
            return Mask(valid=valid, pairwise=pairs), None
        if valid is not None:
            check_mask("MultiheadAttention", Mask(valid=valid), B, T, S, device=pairs.device)
            pairs = pairs & valid[:, None, None]
            pairs = pairs & valid[:, None, :, None] if one_axis else pairs
        return Mask(pairwise=pairs), added.view(axes)


def _valid(given: dict[str, Tensor]) -> Marks | None:
    """Marks the keys that are tokens, by valid or by key_padding_mask. None: all."""
    if "key_padding_mask" not in given:
        return marks("MultiheadAttention: valid", given["valid"]) if "valid" in given else None
    if "valid" in given:
        raise OptionError("MultiheadAttention takes one of valid and key_padding_mask")
    return _allowed("key_padding_mask", given["key_padding_mask"], adds=False)[0]


class _OutProjection(NonDynamicallyQuantizableLinear):
    """Starts as torch's layer leaves it: with a bias of zero."""

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.bias is not None:
            nn.init.zeros_(self.bias)


def _allowed(
    name: str, mask: Tensor, *, adds: bool
) -> tuple[Bool[Tensor, "*shape"], Float[Tensor, "*shape"] | None]:
    """What a mask does not hide; and its other numbers, where it has any or is learned."""
    if name == "attn_mask" or mask.is_floating_point():
        if is_mapped(mask) or torch.compiler.is_exporting():
            raise UnsupportedError(f"MultiheadAttention does not support {name} under vmap or export: it is read")  # fmt: skip
    if mask.dtype == torch.bool:
        return ~mask, None
    if not mask.is_floating_point():
        raise ShapeError(
            f"MultiheadAttention: {name} must be boolean or floating point, got {mask.dtype}. A mask of 1 at tokens goes in as valid="
        )
    hidden = mask <= max(NEVER, torch.finfo(mask.dtype).min)
    added = mask.masked_fill(hidden, 0.0)
    if not mask.numel() or not (mask.requires_grad or added.any()):
        return ~hidden, None
    if not adds or not added.isfinite().all():
        raise ShapeError(
            f"MultiheadAttention: {name} must be boolean or hold 0 and -inf alone: other numbers are added to scores, which attn_mask "
            "does with softmax, if they are finite"
        )
    return ~hidden, added


def _check_place(device: torch.device | str | None, dtype: torch.dtype | None) -> None:
    if isinstance(device, str) and device.partition(":")[0] not in DEVICES:
        raise UnknownNameError("device", device, DEVICES)
    if dtype is not None and not (dtype.is_floating_point and dtype.itemsize > 1):
        raise OptionError(f"MultiheadAttention: dtype ({dtype}) must be floats of 16 bits or more")
