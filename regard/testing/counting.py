"""Cost by count, not by clock: floating-point operations, and tensor bytes alive at the highest point.

Counts are exact and equal on every machine, and tensors on the "meta" device cost no memory, so that a length of
65,536 can be examined anywhere. Operations are those of matrix products, convolutions, attention kernels and Fourier
transforms (5 n log2 n for a complex one, half for a real one); element-wise work is not counted. A fused attention
kernel counts as what it does: no [T S] weights are stored, and a causal one skips the pairs that it may not use.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakIdKeyDictionary


@dataclass(frozen=True)
class Counted:
    flops: int
    peak_bytes: int  # alive at the highest point, beyond what existed at the start


def count(fn: Callable[[], object]) -> Counted:
    """Cost of calling `fn` once, with the backward passes that it starts.

    >>> count(lambda: mixer(x))
    >>> count(lambda: mixer(x).sum().backward())
    """
    counter = _Counter()
    with _FusedOnMeta(counter), counter:
        fn()
    return Counted(counter.flops, counter.peak)


class _Counter(TorchDispatchMode):
    """Counts every operation below autograd, and the bytes of each storage while it exists."""

    def __init__(self):
        super().__init__()
        self.flops = self.live = self.peak = 0
        self._bytes = (
            WeakIdKeyDictionary()
        )  # storage -> what it adds; 0 for storages that existed before

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        packet = operation._overloadpacket
        if packet not in flop_registry and packet not in _FORMULAS:
            with self:  # composite operations arrive whole under inference_mode
                result = operation.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        for storage in _storages((args, kwargs)):
            self._bytes.setdefault(storage, _Share(self, 0))
        result = operation(*args, **kwargs)
        for storage in _storages(result):
            self._follow(storage)
        if packet in _FORMULAS:
            named = (
                dict(zip((a.name for a in operation._schema.arguments), args, strict=False))
                | kwargs
            )
            self.flops += _FORMULAS[packet](named, result)
        elif packet in flop_registry:
            self.flops += flop_registry[packet](*args, **kwargs, out_val=result)
        return result

    def _follow(self, storage: torch.UntypedStorage) -> None:
        size = storage.nbytes()
        if storage not in self._bytes:
            self._bytes[storage] = _Share(self, size)
        elif self._bytes[storage].size not in (0, size):  # ours, and resized
            self._bytes[storage].free()
            self._bytes[storage] = _Share(self, size)


class _Share:
    """Bytes that count while this object lives, which is as long as the storage that is its key."""

    def __init__(self, counter: _Counter, size: int):
        self.counter, self.size = counter, size
        counter.live += size
        counter.peak = max(counter.peak, counter.live)

    def free(self) -> None:
        self.counter.live -= self.size
        self.size = 0

    def __del__(self):
        self.free()


def _storages(tree: Any) -> list[torch.UntypedStorage]:
    return [
        leaf.untyped_storage()
        for leaf in tree_leaves(tree)
        if isinstance(leaf, Tensor) and leaf.layout == torch.strided
    ]


# ------------------------------------------------------------------ formulas: (arguments by name, result) -> operations


def _pairs(query: Tensor, key: Tensor, is_causal: bool) -> int:
    B, H, T, _ = query.shape
    S = key.shape[2]
    if not is_causal:
        return B * H * T * S
    corner = min(T, S)  # query i sees i + 1 keys until there are no more
    return B * H * (corner * (corner + 1) // 2 + (T - corner) * S)


def _attention(query: Tensor, key: Tensor, value: Tensor, is_causal: bool) -> int:
    return 2 * _pairs(query, key, is_causal) * (query.shape[-1] + value.shape[-1])


def _attention_backward(query: Tensor, key: Tensor, value: Tensor, is_causal: bool) -> int:
    """Scores again, then the gradients of weights, q, k and v."""
    return 2 * _pairs(query, key, is_causal) * (3 * query.shape[-1] + 2 * value.shape[-1])


def _transform(real: Tensor, dims: list[int], cost: float) -> int:
    n = math.prod(real.shape[d] for d in dims)
    return round(cost * real.numel() * math.log2(n))


def _from_arguments(formula: Callable[..., int]) -> Callable[[dict[str, Any], Any], int]:
    return lambda named, result: formula(
        named["query"], named["key"], named["value"], named.get("is_causal", False)
    )


_aten = torch.ops.aten
_FORMULAS: dict[Any, Callable[[dict[str, Any], Any], int]] = {
    _aten._fft_c2c: lambda named, result: _transform(named["self"], named["dim"], 5),
    _aten._fft_r2c: lambda named, result: _transform(named["self"], named["dim"], 2.5),
    _aten._fft_c2r: lambda named, result: _transform(result, named["dim"], 2.5),
    _aten.baddbmm_: lambda named, result: 2 * result.numel() * named["batch1"].shape[2],
}
for _name in (
    "flash_attention_for_cpu",
    "flash_attention",
    "efficient_attention",
    "cudnn_attention",
):
    _FORMULAS[getattr(_aten, f"_scaled_dot_product_{_name}")] = _from_arguments(_attention)
    _FORMULAS[getattr(_aten, f"_scaled_dot_product_{_name}_backward")] = _from_arguments(
        _attention_backward
    )


# ------------------------------------------------------------------ on "meta", attention would be spelt out with its weights


class _FusedOnMeta(TorchFunctionMode):
    def __init__(self, counter: _Counter):
        super().__init__()
        self.counter = counter

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is F.scaled_dot_product_attention:
            names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
            named = dict(zip(names, args, strict=False)) | kwargs
            mask = named.get("attn_mask")
            if named["query"].is_meta and not (mask is not None and mask.requires_grad):
                q, k, v = named["query"], named["key"], named["value"]
                return _MetaAttention.apply(
                    q, k, v, mask, named.get("is_causal", False), self.counter
                )
        return function(*args, **kwargs)


class _MetaAttention(torch.autograd.Function):
    """Allocates what the fused kernel does: the output, one number for each query, and a boolean mask as numbers."""

    @staticmethod
    def forward(ctx, q, k, v, mask, is_causal, counter):
        if mask is not None and mask.dtype == torch.bool:
            mask = mask.to(q.dtype)
        out = q.new_empty(*q.shape[:-1], v.shape[-1])
        log_sum = q.new_empty(q.shape[:-1], dtype=torch.promote_types(q.dtype, torch.float32))
        counter.flops += _attention(q, k, v, is_causal)
        ctx.save_for_backward(q, k, v, out, log_sum, mask)
        ctx.is_causal, ctx.counter = is_causal, counter
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, *_ = ctx.saved_tensors
        ctx.counter.flops += _attention_backward(q, k, v, ctx.is_causal)
        return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), None, None, None
