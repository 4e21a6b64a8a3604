"""The public packages as modules: a core takes q, k, v [B H T K], a layer takes x [B T D].

A package is imported when its builder is called, so that absent packages cost nothing. Dropout is off everywhere.
"""

from collections.abc import Callable
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Called(nn.Module):
    """`call(inner, *inputs)`, with the parameters of `inner`."""

    def __init__(self, inner: nn.Module | None, call: Callable[..., Tensor]):
        super().__init__()
        self.inner, self.call = inner, call

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.call(self.inner, *inputs)


def _first(inner: nn.Module, *inputs: Tensor) -> Tensor:
    return inner(*inputs)[0]


def _fold(inner: nn.Module, *inputs: Tensor) -> Tensor:
    """Heads folded into the batch, as some packages need them."""
    B, H = inputs[0].shape[:2]
    out = inner(*(z.reshape(B * H, *z.shape[2:]) for z in inputs))
    out = out[0] if isinstance(out, tuple) else out
    return out.reshape(B, H, *out.shape[1:])


def sdpa(case: Any) -> nn.Module:
    return Called(
        None, lambda _, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=case.causal)
    )


def x_transformers(case: Any) -> nn.Module:
    from x_transformers.x_transformers import Attention

    inner = Attention(
        dim=case.dim, heads=case.num_heads, dim_head=case.head_dim, causal=case.causal, flash=True
    )
    return Called(inner, lambda inner, x: _tensor(inner(x)))


def _tensor(out: Any) -> Tensor:
    return out if isinstance(out, Tensor) else out[0]


def local_exact(case: Any) -> nn.Module:
    return _local(case, exact_windowsize=True)


def local_blocks(case: Any) -> nn.Module:
    return _local(case, exact_windowsize=False)


def _local(case: Any, exact_windowsize: bool) -> nn.Module:
    from local_attention import LocalAttention

    return LocalAttention(
        window_size=128,
        causal=case.causal,
        look_backward=1,
        look_forward=0 if case.causal else 1,
        use_rotary_pos_emb=False,
        exact_windowsize=exact_windowsize,
    )


def hf_longformer(case: Any) -> nn.Module:
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    config = LongformerConfig(
        hidden_size=case.dim,
        num_attention_heads=case.num_heads,
        num_hidden_layers=1,
        attention_window=[256],
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=case.length,
    )
    nothing = torch.zeros(case.batch, case.length)
    masked = torch.zeros(case.batch, case.length, dtype=torch.bool)

    def call(inner: nn.Module, x: Tensor) -> Tensor:
        return inner(
            x,
            attention_mask=nothing,
            is_index_masked=masked,
            is_index_global_attn=masked,
            is_global_attn=False,
        )[0]

    return Called(LongformerSelfAttention(config, layer_id=0), call)


class _AlwaysTraining(nn.Module):
    """Stays in training mode: in evaluation, transformers' BigBird draws the same random block everywhere."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner.train()

    def train(self, mode: bool = True) -> "_AlwaysTraining":
        return self

    def forward(self, *inputs: Any) -> Any:
        return self.inner(*inputs)


def hf_bigbird(case: Any) -> nn.Module:
    from transformers import BigBirdConfig
    from transformers.models.big_bird.modeling_big_bird import (
        BigBirdBlockSparseAttention,
        BigBirdModel,
    )

    config = BigBirdConfig(
        hidden_size=case.dim,
        num_attention_heads=case.num_heads,
        num_hidden_layers=1,
        block_size=64,
        num_random_blocks=3,
        max_position_embeddings=max(4096, case.length),
        attention_probs_dropout_prob=0.0,
        use_bias=False,
    )
    present = torch.ones(case.batch, case.length)
    blocked, band, from_mask, to_mask = BigBirdModel.create_masks_for_block_sparse_attn(present, 64)
    inner = _AlwaysTraining(BigBirdBlockSparseAttention(config, seed=0))
    return Called(inner, lambda inner, x: inner(x, band, from_mask, to_mask, blocked, blocked)[0])


def reformer(case: Any) -> nn.Module:
    from reformer_pytorch import LSHAttention

    inner = LSHAttention(bucket_size=64, n_hashes=4, causal=case.causal)
    return Called(inner, lambda inner, q, k, v: _fold(inner, q, v))


def hf_reformer(case: Any) -> nn.Module:
    from transformers import ReformerConfig
    from transformers.models.reformer.modeling_reformer import LSHSelfAttention

    buckets = 2 * (case.length // 64)  # as the model itself chooses them
    config = ReformerConfig(
        hidden_size=case.dim,
        num_attention_heads=case.num_heads,
        attention_head_size=case.head_dim,
        attn_layers=["lsh"],
        lsh_attn_chunk_length=64,
        num_hashes=4,
        num_buckets=_near_square(buckets) if buckets > 128 else buckets,
        is_decoder=case.causal,
        lsh_attention_probs_dropout_prob=0.0,
        max_position_embeddings=case.length,
    )
    return Called(LSHSelfAttention(config, layer_idx=0), _first)


def _near_square(buckets: int) -> list[int]:
    half = (buckets.bit_length() - 1) // 2
    return [2**half, buckets // 2**half]


def routing(case: Any) -> nn.Module:
    from routing_transformer.routing_transformer import KmeansAttention

    inner = KmeansAttention(
        num_clusters=max(1, case.length // 128),
        window_size=min(128, case.length),
        num_heads=case.num_heads,
        head_dim=case.head_dim,
        causal=case.causal,
    )
    return Called(inner, _first)


def sinkhorn(case: Any) -> nn.Module:
    from sinkhorn_transformer.sinkhorn_transformer import SinkhornSelfAttention

    return SinkhornSelfAttention(
        case.dim, 128, case.length, heads=case.num_heads, causal=case.causal
    )


def fast_linear(case: Any) -> nn.Module:
    from fast_transformers.attention import CausalLinearAttention, LinearAttention
    from fast_transformers.masking import FullMask, LengthMask, TriangularCausalMask

    inner = (CausalLinearAttention if case.causal else LinearAttention)(case.head_dim)
    T = case.length
    mask = TriangularCausalMask(T) if case.causal else FullMask(T)
    lengths = LengthMask(torch.full((case.batch,), T), max_len=T)

    def call(inner: nn.Module, *qkv: Tensor) -> Tensor:
        out = inner(*(z.transpose(1, 2) for z in qkv), mask, lengths, lengths)
        return out.transpose(1, 2)

    return Called(inner, call)


def fla_chunks(case: Any) -> nn.Module:
    naive_chunk_linear_attn = _fla_naive().naive_chunk_linear_attn

    def call(_: None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        phi_q, phi_k = F.elu(q) + 1, F.elu(k) + 1
        out = naive_chunk_linear_attn(
            *(z.transpose(1, 2) for z in (phi_q, phi_k, v)), scale=1.0, normalize=True
        )
        return out.transpose(1, 2)

    return Called(None, call)


def _fla_naive() -> ModuleType:
    """The one file that is needed: the package around it imports Triton, which a CPU does not have."""
    package = find_spec("fla")
    if package is None or package.origin is None:
        raise ImportError("fla is not installed")
    path = Path(package.origin).parent / "ops" / "linear_attn" / "naive.py"
    spec = spec_from_file_location("fla_naive", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def linear_attention_transformer(case: Any) -> nn.Module:
    from linear_attention_transformer.linear_attention_transformer import SelfAttention

    return SelfAttention(case.dim, case.num_heads, causal=case.causal)


def performer(num_features: int) -> Callable[[Any], nn.Module]:
    def build(case: Any) -> nn.Module:
        from performer_pytorch import FastAttention

        return FastAttention(case.head_dim, nb_features=num_features, causal=case.causal)

    return build


def linformer(case: Any) -> nn.Module:
    from linformer.linformer import LinformerSelfAttention

    return LinformerSelfAttention(
        case.dim, case.length, k=min(256, case.length), heads=case.num_heads
    )


def memory_compressed(case: Any) -> nn.Module:
    from memory_compressed_attention import MemoryCompressedAttention

    return MemoryCompressedAttention(
        case.dim, heads=case.num_heads, causal=case.causal, compression_factor=3
    )


def gau(case: Any) -> nn.Module:
    from flash_pytorch import GAU

    return GAU(dim=case.dim, query_key_dim=128, causal=case.causal, add_residual=False)


def flash(case: Any) -> nn.Module:
    from flash_pytorch import FLASH

    return FLASH(dim=case.dim, group_size=256, query_key_dim=128, causal=case.causal)


def gmlp(case: Any) -> nn.Module:
    from g_mlp_pytorch.g_mlp_pytorch import gMLPBlock

    return gMLPBlock(dim=case.dim, dim_ff=2048, seq_len=case.length, causal=case.causal)


def mixer(case: Any) -> nn.Module:
    from functools import partial

    from mlp_mixer_pytorch.mlp_mixer_pytorch import FeedForward

    return FeedForward(case.length, 2048, dense=partial(nn.Conv1d, kernel_size=1))


def hf_fnet(case: Any) -> nn.Module:
    from transformers.models.fnet.modeling_fnet import FNetBasicFourierTransform

    config = SimpleNamespace(use_tpu_fourier_optimizations=False)
    return Called(FNetBasicFourierTransform(config), _first)
