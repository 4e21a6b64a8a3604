"""FLASH and FLASH-Quad: gated units with attention inside, whole or by chunks (Hua et al. 2022, arXiv 2202.10447).

base: 24 gated layers of width 768, e = 1,536, s = 128, as many parameters as a Transformer of 12 layers (about 110
million with 32,000 tokens); FLASH has chunks of 256. Two gated layers are one ordinary block, so num_layers is 12.
small: for small machines, s = 32 and chunks of 64.

ScaleNorm before each unit, sinusoids added once, rotary and relative positions in the units. Unlike the paper: the
sinusoids have no learned scale beside that of the embeddings, and weights are divided as the mixers `gau` and `flash`
say (`scale="paper"` is the paper's).
"""

from typing import Any

from regard.models.published.stack import SMALL, Head, Preset, Published, mixed

_HEADS: tuple[Head, ...] = ("language_model", "masked_language_model", "classifier")


def _presets(mixer: str, **small: Any) -> dict[str, Preset]:
    shared = {"num_heads": 1, "norm": "scale", "position": "sinusoidal"}
    base = {"dim": 768, "num_layers": 12, "max_len": 8192}
    return {
        "base": base | shared | mixed(mixer, hidden_dim=1536, key_dim=128),
        "small": SMALL | shared | mixed(mixer, key_dim=32, **small),
    }


flash = Published("flash", __doc__, heads=_HEADS, presets=_presets("flash", chunk_size=64))

flash_quad = Published(
    "flash_quad",
    f"FLASH-Quad: FLASH whose attention is whole.\n\n{__doc__}",
    heads=_HEADS,
    presets=_presets("gau"),
)
