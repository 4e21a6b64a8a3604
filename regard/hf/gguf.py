"""GGUF files of Llama's kin: names and settings become those of Transformers, and quantised numbers float32.

Rows of queries and keys are stored so that adjacent channels turn together (`pairing="adjacent"`): read in the other
layout, a model still talks, at twice the perplexity.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.core import StoredDataError, UnsupportedError

OUTSIDE = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
PARTS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
SETTINGS = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "intermediate_size": "feed_forward_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "max_position_embeddings": "context_length",
}


def read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Config and tensors as Transformers names them. Needs the package `gguf`, which dequantises.

    Raises UnsupportedError for another architecture than Llama's, StoredDataError for a damaged file.
    """
    gguf, reader = _reader(path)
    kind = _value(reader, "general.architecture")
    if kind != "llama":
        raise UnsupportedError(f"load does not support GGUF files of {kind!r}: it reads llama")
    config = {name: _value(reader, f"llama.{key}") for name, key in SETTINGS.items()}
    base = _value(reader, "llama.rope.freq_base", 10000.0)
    tensors = {}
    for tensor in reader.tensors:
        values = torch.tensor(gguf.dequantize(tensor.data, tensor.tensor_type))
        tensors[_name(tensor.name)] = values.reshape([int(n) for n in reversed(tensor.shape)])
    return {
        **config,
        "model_type": "llama",
        "hidden_act": "silu",
        "vocab_size": len(tensors["model.embed_tokens.weight"]),
        "rope_parameters": {"rope_type": "default", "rope_theta": base},
        "tie_word_embeddings": "lm_head.weight" not in tensors,
    }, tensors


def tokenizer(path: Path) -> Any:
    """The byte-level BPE tokenizer in the file, of the package `tokenizers`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    _, reader = _reader(path)
    words = _value(reader, "tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in _value(reader, "tokenizer.ggml.merges")]
    made = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def _reader(path: Path) -> tuple[Any, Any]:
    try:
        import gguf
    except ModuleNotFoundError:
        raise UnsupportedError(
            "load does not support GGUF files without their reader: pip install gguf"
        ) from None
    try:
        return gguf, gguf.GGUFReader(path)
    except (ValueError, IndexError, KeyError) as error:
        raise StoredDataError(f"load: {path} is no GGUF file, or damaged: {error}") from None


def _value(reader: Any, key: str, default: Any = None) -> Any:
    field = reader.fields.get(key)
    if field is None:
        if default is None:
            raise StoredDataError(f"load: the GGUF file has no {key}")
        return default
    return field.contents()


def _name(name: str) -> str:
    first, *rest = name.removesuffix(".weight").split(".")
    known = OUTSIDE.get(first) if not rest else PARTS.get(rest[-1])
    if known is None:
        raise UnsupportedError(f"load does not support the tensor {name!r} of a GGUF file")
    return f"{known}.weight" if not rest else f"model.layers.{rest[0]}.{known}.weight"
