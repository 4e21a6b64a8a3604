"""Decoders whose layers keep a state: RetNet and Mamba-2, and three such layers before one of attention.

The releases of Qwen3-Next and Kimi Linear have experts; here each layer has the feed-forward layer of their dense ones. The eps of norms is
1e-5, and Mamba-2 of more groups than one is not among them. `small`: for small machines.
"""

from typing import Any

from regard.models.config import Layer
from regard.models.published.decoders import _PLAIN, _SMALL
from regard.models.published.stack import Preset, decoder, mixed, sizes

_STATES = _PLAIN | {"position": "none", "tied": False}


def _retention(dim: int, num_heads: int, num_layers: int, **more: Any) -> Preset:
    own = _STATES | mixed("scalar_decay", value_dim=2 * dim // num_heads)
    own |= {"feed_forward": "gelu", "norm": "layer"}
    return own | sizes(dim, num_heads, num_layers, hidden_dim=2 * dim, **more)


retnet = decoder(
    "retnet",
    """RetNet (Sun et al. 2023, arXiv 2307.08621): retention whose values are twice as wide as its keys, LayerNorm, GELU.""",
    presets={
        "1.3b": _retention(2048, 8, 24),
        "2.7b": _retention(2560, 10, 32),
        "6.7b": _retention(4096, 16, 32),
        "small": _retention(64, 4, 2, max_len=256),
    },
)


def _mamba(dim: int, num_layers: int, key_dim: int = 128, head_dim: int = 64) -> Preset:
    own = mixed("scalar_decay", form="mamba2", key_dim=key_dim, value_dim=head_dim)
    return _STATES | own | sizes(dim, 2 * dim // head_dim, num_layers, hidden_dim=0, tied=True)


mamba2 = decoder(
    "mamba2",
    """Mamba-2 (Dao and Gu 2024, arXiv 2405.21060): blocks without a feed-forward layer.

130m to 2.7b: of 50,288 tokens.""",
    presets={
        "130m": _mamba(768, 24),
        "370m": _mamba(1024, 48),
        "780m": _mamba(1536, 48),
        "1.3b": _mamba(2048, 48),
        "2.7b": _mamba(2560, 64),
        "small": _mamba(64, 2, 16, 32),
    },
)


def _qwen(K: int, heads: tuple[int, int, int], head_dim: int) -> tuple[Layer, ...]:
    """heads: of keys and of values in the delta rule, of keys in attention, a quarter of whose channels is turned."""
    delta = {"num_key_heads": heads[0], "num_heads": heads[1], "key_dim": K, "value_dim": K}
    own = {"num_kv_heads": heads[2], "head_dim": head_dim, "qk_norm": True, "gate": True}
    turned = {"base": 1e7, "channels": head_dim // 4}
    far = Layer("softmax", own | {"position": "rotary", "position_options": turned})
    return (Layer("gated_delta", delta),) * 3 + (far,)


qwen3_next = decoder(
    "qwen3_next",
    """Qwen3-Next (Qwen team 2025) without experts: three gated delta rules before one layer of gated softmax attention.

80b: layers and widths of the release of this size, of 151,936 tokens.""",
    presets={
        "80b": {
            **_STATES,
            **sizes(2048, 16, 48, hidden_dim=5632 * 3 // 2, max_len=262144),
            "mixer": _qwen(128, (16, 32, 2), 256),
        },
        "small": _STATES | _SMALL | {"num_layers": 4, "mixer": _qwen(16, (2, 4, 2), 32)},
    },
)


def _kimi(K: int, latent_dim: int) -> tuple[Layer, ...]:
    own = {"latent_dim": latent_dim, "nope_dim": K, "rotary_dim": K // 2, "value_dim": K}
    delta = Layer("kimi_delta", {"key_dim": K, "value_dim": K})
    return (delta,) * 3 + (Layer("latent", own | {"base": None}),)


kimi_linear = decoder(
    "kimi_linear",
    """Kimi Linear (Moonshot AI 2025, arXiv 2510.26692) without experts: three Kimi delta rules before one layer of latent attention without positions.

48b: layers and widths of the release of this size, of 163,840 tokens.""",
    presets={
        "48b": {
            **_STATES,
            **sizes(2304, 32, 27, hidden_dim=9216 * 3 // 2, max_len=1048576),
            "mixer": _kimi(128, 512),
        },
        "small": _STATES | _SMALL | {"num_layers": 4, "mixer": _kimi(16, 32)},
    },
)
