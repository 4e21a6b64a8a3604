"""MLP-Mixer: feed-forward layers across patches and across channels (Tolstikhin et al. 2021, arXiv 2105.01601).

    U = X + W_2 gelu(W_1 LN(X)),   Y = U + W_4 gelu(W_3 LN(U))         W_1, W_2 across patches, W_3, W_4 across channels

s_32 to h_14: the paper's sizes, by the side of a patch; no positions, a norm, the mean over patches, a linear head.
small: for small machines, patches of 2. Unlike the paper: gelu is exact, the head does not start at zero, and there is
no stochastic depth.
"""

from regard.models.published.stack import Preset, Published, mixed


def _mixer(patch_size: int, num_layers: int, dim: int) -> Preset:
    """Layers across patches are half as wide as the channels, those across channels four times."""
    return {
        "patch_size": patch_size,
        "num_layers": num_layers,
        "dim": dim,
        "hidden_dim": 4 * dim,
        "feed_forward_bias": True,
        **mixed("mlp_mixer", token_hidden_dim=dim // 2),
        "position": "none",
    }


mlp_mixer = Published(
    "mlp_mixer",
    __doc__,
    heads=("patch_classifier",),
    presets={
        "s_32": _mixer(32, 8, 512),
        "s_16": _mixer(16, 8, 512),
        "b_32": _mixer(32, 12, 768),
        "b_16": _mixer(16, 12, 768),
        "l_32": _mixer(32, 24, 1024),
        "l_16": _mixer(16, 24, 1024),
        "h_14": _mixer(14, 32, 1280),
        "small": _mixer(2, 2, 64),
    },
)
