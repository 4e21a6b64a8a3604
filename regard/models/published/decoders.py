"""Decoders of 2024 and 2025: RMSNorm before each layer, rotary positions, grouped heads, gated feed-forward layers, no biases.

Unlike the releases of Qwen3 and Gemma 3, the eps of norms is 1e-5 (theirs: 1e-6); gains of Gemma's norms are stored less one, ours are whole.
`window_size` counts one side without the query, a release's sliding window with it. The context that a release was stretched to
(Llama 3.1's scaled rotation) is not part of them. `small`: for small machines.
"""

from regard.models.config import Layer
from regard.models.published.stack import Preset, decoder, sizes

_PLAIN = {"feed_forward": "swiglu", "norm": "rms", "position": "rotary", "embedding_scale": 1.0}
_SMALL = sizes(64, 4, 2, max_len=256)
_LLAMA = _PLAIN | {"position_options": {"base": 500000.0}, "tied": False}

llama3 = decoder(
    "llama3",
    """Llama 3 (Llama team 2024, arXiv 2407.21783): softmax attention whose keys and values have fewer heads.

8b: of 128,256 tokens.""",
    presets={
        "8b": {
            **_LLAMA,
            **sizes(4096, 32, 32, hidden_dim=14336 * 3 // 2, max_len=8192),
            "mixer_options": {"num_kv_heads": 8},
        },
        "small": _LLAMA | _SMALL | {"mixer_options": {"num_kv_heads": 2}},
    },
)


def _qwen(dim: int, num_heads: int, num_layers: int, width: int, tied: bool) -> Preset:
    own = _QWEN | {"max_len": 40960, "mixer_options": _OWN, "tied": tied}
    return sizes(dim, num_heads, num_layers, hidden_dim=width * 3 // 2, **own)


_OWN = {"num_kv_heads": 8, "head_dim": 128, "qk_norm": True}
_QWEN = _PLAIN | {"position_options": {"base": 1000000.0}}

qwen3 = decoder(
    "qwen3",
    """Qwen3 (Qwen team 2025, arXiv 2505.09388): as Llama 3, with normalised queries and keys, and heads of 128 channels.

0.6b, 1.7b, 8b: of 151,936 tokens.""",
    presets={
        "0.6b": _qwen(1024, 16, 28, 3072, True),
        "1.7b": _qwen(2048, 16, 28, 6144, True),
        "8b": _qwen(4096, 32, 36, 12288, False),
        "small": _QWEN | _SMALL | {"mixer_options": _OWN | {"num_kv_heads": 2, "head_dim": 32}},
    },
)


def _gemma(head_dim: int, window: int, **stack: int) -> Preset:
    """Five windows of so many tokens, the query among them, before each layer that sees all."""
    own = {"num_kv_heads": 1, "head_dim": head_dim, "qk_norm": True, "position": "rotary"}
    near = Layer("local", own | {"window_size": window - 1, "position_options": {"base": 10000.0}})
    far = Layer("softmax", own | {"position_options": {"base": 1000000.0}})
    more = {"feed_forward": "geglu_tanh", "norm": "rms", "norm_after": True, "position": "none"}
    return more | {"mixer": (near,) * 5 + (far,)} | stack


gemma3 = decoder(
    "gemma3",
    """Gemma 3 (Gemma team 2025, arXiv 2503.19786): five layers of a sliding window before one that sees all, norms before and after each.

270m, 1b: of 262,144 tokens.""",
    presets={
        "270m": _gemma(256, 512, **sizes(640, 4, 18, hidden_dim=3072, max_len=32768)),
        "1b": _gemma(256, 512, **sizes(1152, 4, 26, hidden_dim=10368, max_len=32768)),
        "small": _gemma(32, 32, **sizes(64, 4, 6, max_len=256)),
    },
)
