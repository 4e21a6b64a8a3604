"""CTranslate2's model.bin of a Whisper: names become those of Transformers, fused matrices are cut apart.

Queries, keys and values of self-attention are one matrix of 3 D rows, keys and values of cross attention one of 2 D;
the number of heads is a variable, and biases of keys are there, as zeros.
"""

import struct
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.core import StoredDataError, UnsupportedError

TYPES = (torch.float32, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16)
VERSION = 6
NORM = {"gamma": "weight", "beta": "bias"}


def read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Config and tensors as Transformers names them, in float32.

    Raises UnsupportedError for another kind of model and for quantised weights, StoredDataError for a damaged file.
    """
    try:
        kind, found = _variables(path.read_bytes())
    except (struct.error, IndexError, ValueError, RuntimeError) as error:
        raise StoredDataError(
            f"load: {path} is no model of CTranslate2, or damaged: {error}"
        ) from None
    if kind != "WhisperSpec":
        raise UnsupportedError(f"load does not support CTranslate2's {kind}: it reads WhisperSpec")
    tensors: dict[str, Tensor] = {}
    for name, value in found.items():
        if value.dim() == 0:
            continue
        if not value.is_floating_point():
            raise UnsupportedError(
                "load does not support quantised weights of CTranslate2: convert the model as float16 or float32"
            )
        tensors |= _renamed(name.split("/"), value.float())
    layers = {
        side: len(
            {name.split(".")[3] for name in tensors if name.startswith(f"model.{side}.layers.")}
        )
        for side in ("encoder", "decoder")
    }
    encoder, decoder = (
        tensors[f"model.{side}.embed_positions.weight"] for side in ("encoder", "decoder")
    )
    return {
        "model_type": "whisper",
        "d_model": encoder.shape[1],
        "encoder_layers": layers["encoder"],
        "decoder_layers": layers["decoder"],
        "encoder_attention_heads": int(found["encoder/num_heads"]),
        "decoder_attention_heads": int(found["decoder/num_heads"]),
        "encoder_ffn_dim": len(tensors["model.encoder.layers.0.fc1.bias"]),
        "decoder_ffn_dim": len(tensors["model.decoder.layers.0.fc1.bias"]),
        "num_mel_bins": tensors["model.encoder.conv1.weight"].shape[1],
        "max_source_positions": len(encoder),
        "max_target_positions": len(decoder),
        "vocab_size": len(tensors["model.decoder.embed_tokens.weight"]),
        "activation_function": "gelu",
        "scale_embedding": False,
        "tie_word_embeddings": True,
    }, tensors


def _variables(data: bytes) -> tuple[str, dict[str, Tensor]]:
    """The kind of model, and all variables by name."""
    at = 0

    def number(form: str) -> int:
        nonlocal at
        value = struct.unpack_from(f"<{form}", data, at)[0]
        at += struct.calcsize(form)
        return value

    def word() -> str:
        nonlocal at
        size = number("H")
        at += size
        return data[at - size : at].rstrip(b"\0").decode()

    version = number("I")
    if version != VERSION:
        raise ValueError(f"its version is {version}, and {VERSION} is read")
    kind, _, found = word(), number("I"), {}
    for _ in range(number("I")):
        name = word()
        shape = [number("I") for _ in range(number("B"))]
        dtype, size = TYPES[number("B")], number("I")
        if at + size > len(data):
            raise ValueError("it ends too early")
        found[name] = torch.frombuffer(bytearray(data[at : at + size]), dtype=dtype).view(shape)
        at += size
    return kind, found


def _renamed(parts: list[str], value: Tensor) -> dict[str, Tensor]:
    """Transformers' tensors of one variable."""
    side, first, *rest = parts
    at = f"model.{side}"
    if first.startswith("layer_") and first != "layer_norm":
        return _of_layer(f"{at}.layers.{first.removeprefix('layer_')}", rest, value)
    names = {
        "embeddings.weight": "embed_tokens.weight",
        "position_encodings.encodings": "embed_positions.weight",
        "layer_norm.gamma": "layer_norm.weight",
        "layer_norm.beta": "layer_norm.bias",
    }
    plain = ".".join([first, *rest])
    return {f"{at}.{names.get(plain, plain)}": value}


def _of_layer(at: str, rest: list[str], value: Tensor) -> dict[str, Tensor]:
    block, part, kind = rest
    attention = {"self_attention": "self_attn", "attention": "encoder_attn"}.get(block)
    if attention is None:
        names = {"layer_norm": "final_layer_norm", "linear_0": "fc1", "linear_1": "fc2"}
        return {f"{at}.{names[part]}.{NORM.get(kind, kind)}": value}
    if part == "layer_norm":
        return {f"{at}.{attention}_layer_norm.{NORM[kind]}": value}
    fused = {
        ("self_attn", "linear_0"): "qkv",
        ("self_attn", "linear_1"): "out",
        ("encoder_attn", "linear_0"): "q",
        ("encoder_attn", "linear_1"): "kv",
        ("encoder_attn", "linear_2"): "out",
    }[attention, part]
    if fused == "out":
        return {f"{at}.{attention}.out_proj.{kind}": value}
    pieces = zip(fused, value.chunk(len(fused)), strict=True)
    return {
        f"{at}.{attention}.{letter}_proj.{kind}": piece
        for letter, piece in pieces
        if (letter, kind) != ("k", "bias")
    }
