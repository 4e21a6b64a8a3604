"""Cost by count, not by clock: floating-point operations, and tensor bytes alive at the highest point.

Counts are exact and equal on every machine, and tensors on the "meta" device cost no memory, so that a length of
65,536 can be examined anywhere. Operations are those of matrix products, convolutions, attention kernels and Fourier
transforms (5 n log2 n for a complex one, half for a real one); element-wise work is not counted. A fused attention
kernel counts as what it does: no [T S] weights are stored, and a causal one skips the pairs that it may not use.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakIdKeyDictionary


class Counted(NamedTuple):
    flops: int
    peak_bytes: int  # alive at the highest point, beyond what existed at the start


def count(fn: Callable[[], object]) -> Counted:
    """Cost of calling `fn` once, with the backward passes that it starts.

    >>> count(lambda: mixer(x))
    >>> count(lambda: mixer(x).sum().backward())
    """
    counter = _Counter()
    with _FusedOnMeta(), counter:
        fn()
    return Counted(counter.flops, counter.peak)


class _Counter(TorchDispatchMode):
    """Counts every operation below autograd, and the bytes of each storage while it exists."""

    def __init__(self):
        super().__init__()
        self.flops = self.live = self.peak = 0
        # storage -> what it adds; 0 for storages that existed before
        self._bytes = WeakIdKeyDictionary()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        packet = operation._overloadpacket
        if packet not in flop_registry and packet not in _FORMULAS:
            with self:  # composite operations arrive whole under inference_mode
                result = operation.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        for storage in storages((args, kwargs)):
            self._bytes.setdefault(storage, _Share(self, 0))
        result = operation(*args, **kwargs)
        for storage in storages(result):
            size = storage.nbytes()
            if storage not in self._bytes:
                self._bytes[storage] = _Share(self, size)
            elif self._bytes[storage].size not in (0, size):  # ours, and resized
                self._bytes[storage].free()
                self._bytes[storage] = _Share(self, size)
        if packet in _FORMULAS:
            named = (
                dict(zip((a.name for a in operation._schema.arguments), args, strict=False))
                | kwargs
            )
            self.flops += _FORMULAS[packet](named, result)
        elif packet in flop_registry:
            self.flops += flop_registry[packet](*args, **kwargs, out_val=result)
        return result


class _Share:
    """Bytes that count while this object lives, which is as long as the storage that is its key."""

    def __init__(self, counter: _Counter, size: int):
        self.counter = counter
        self.size = size
        counter.live += size
        counter.peak = max(counter.peak, counter.live)

    def free(self) -> None:
        self.counter.live -= self.size
        self.size = 0

    __del__ = free


def storages(tree: Any) -> list[torch.UntypedStorage]:
    return [
        leaf.untyped_storage()
        for leaf in tree_leaves(tree)
        if isinstance(leaf, Tensor) and leaf.layout == torch.strided
    ]


# ------------------------------------------------------------------ formulas: (arguments by name, result) -> operations


def _attention(named: dict[str, Any], result: Any, of_keys: int = 1, of_values: int = 1) -> int:
    """of_keys, of_values: matrix products of T x S pairs with vectors of their widths."""
    B, H, T, K = named["query"].shape
    S, V = named["value"].shape[2:]
    pairs = T * S
    if named.get("is_causal", False):
        corner = min(T, S)  # query i sees i + 1 keys until there are no more
        pairs = corner * (corner + 1) // 2 + (T - corner) * S
    return 2 * B * H * pairs * (of_keys * K + of_values * V)


_attention_backward = partial(_attention, of_keys=3, of_values=2)
"""Scores again, then the gradients of weights, q, k and v."""


def _transform(named: dict[str, Any], real: Tensor, cost: float) -> int:
    return round(cost * real.numel() * math.log2(math.prod(real.shape[d] for d in named["dim"])))


_aten = torch.ops.aten
_FORMULAS = {
    _aten._fft_c2c: lambda named, result: _transform(named, named["self"], 5),
    _aten._fft_r2c: lambda named, result: _transform(named, named["self"], 2.5),
    _aten._fft_c2r: lambda named, result: _transform(named, result, 2.5),
    _aten.baddbmm_: lambda named, result: 2 * result.numel() * named["batch1"].shape[2],
}
for _name in (
    "flash_attention_for_cpu",
    "flash_attention",
    "efficient_attention",
    "cudnn_attention",
):
    _FORMULAS[getattr(_aten, f"_scaled_dot_product_{_name}")] = _attention
    _FORMULAS[getattr(_aten, f"_scaled_dot_product_{_name}_backward")] = _attention_backward


# ------------------------------------------------------------------ on "meta", attention would be spelt out with its weights


class _FusedOnMeta(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is F.scaled_dot_product_attention:
            function = _fused_on_meta
        return function(*args, **(kwargs or {}))


def _fused_on_meta(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Tensor:
    """The fused kernel of CPUs for what it takes: values as wide as keys, and a mask that is not learned."""
    learned = attn_mask is not None and attn_mask.requires_grad
    if not query.is_meta or learned or query.shape[-1] != value.shape[-1]:
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, **options
        )
    mask = None if attn_mask is None else attn_mask.to(query.dtype)
    fused = _aten._scaled_dot_product_flash_attention_for_cpu
    return fused(query, key, value, dropout_p, is_causal, attn_mask=mask)[0]
