"""Token mixing of MLP-Mixer (Tolstikhin et al. 2021, arXiv 2105.01601): a feed-forward layer across positions.

    Y = W_2 gelu(W_1 X + b_1 1^T) + b_2 1^T,   W_1 [M T], W_2 [T M], shared by all channels

The paper's channel mixing is an ordinary feed-forward layer, which the block adds. Cost: T M D, M = `token_hidden_dim`
(by default dim / 2, as in the paper's models). A shorter sequence uses the first columns of W_1 and rows of W_2; the
hidden layer sums over all tokens, so there is no causal form, and absent tokens add nothing to it.

Args:
    token_hidden_dim: channels of the hidden layer over positions; None: half of dim
"""

import torch.nn.functional as F
from torch import nn

from regard.core import Mixer, No
from regard.functional.rows import longer
from regard.functional.spatial import spatial_mixing
from regard.mixers._base import ALL
from regard.nn.heads import alone


class MLPMixer(Mixer):
    __doc__ = __doc__
    name = "mlp_mixer"
    family = "score-free"
    paper = "Tolstikhin et al. 2021, arXiv 2105.01601"
    capabilities = ALL.but(
        causal=No("its hidden layer sums over all positions"),
        pairwise=No("positions meet in a hidden layer, so single pairs cannot be taken out"),
        cross=No("its layers are made for the positions of one sequence"),
        streaming=No("its hidden layer sums over all positions"),
        attention_map=No("positions are mixed by a nonlinear layer, not by weights"),
        any_length=No("its weights have one column for each of max_len positions"),
        time="T M D",
        state=None,
    )
    variants = {"narrow": {"token_hidden_dim": 5}}

    def __init__(self, dim: int, *, max_len: int, token_hidden_dim: int | None = None):
        super().__init__(dim, max_len=max_len)
        hidden = token_hidden_dim or max(1, dim // 2)
        self.gather = nn.Linear(max_len, hidden)
        self.spread = nn.Linear(hidden, max_len)

    def mix(self, x, context, mask):
        T = x.shape[1]
        gather, spread = self.gather, self.spread
        if not (alone(gather) and alone(spread)):  # which is cut to T, what is around it is not
            whole = F.pad(x, (0, 0, 0, self.max_len - T))
            return spread(F.gelu(gather(whole.mT))).mT[:, :T]
        first = longer(gather.weight, T, 1)[None, :, :T]
        hidden = F.gelu(spatial_mixing(first, x, bias=gather.bias[None]))
        last, bias = (longer(z, T, 0)[None, :T] for z in (spread.weight, spread.bias))
        return spatial_mixing(last, hidden, bias=bias)
