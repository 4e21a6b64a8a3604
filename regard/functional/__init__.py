"""Parameter-free mathematics by kernel family. q [B H T K], k [B G S K], v [B G S V], as in torch's own SDPA."""

from regard.functional.clustered.kmeans import routed_attention
from regard.functional.clustered.lsh import lsh_attention
from regard.functional.gated.squared_relu import squared_relu_attention
from regard.functional.linear.attention import linear_attention
from regard.functional.linear.efficient import efficient_attention
from regard.functional.linear.favor import favor_attention
from regard.functional.linear.rfa import random_feature_attention
from regard.functional.low_rank.compressed import compressed_attention
from regard.functional.low_rank.projected import projected_attention
from regard.functional.sinkhorn.attention import attend as sinkhorn_attention
from regard.functional.softmax.biased import biased_attention
from regard.functional.softmax.dense import softmax_attention
from regard.functional.softmax.relative import relative_attention
from regard.functional.softmax.scored import scored_attention
from regard.functional.softmax.window import window_attention
from regard.functional.sparse.attention import attend as pattern_attention
from regard.functional.synthetic.fourier import fourier_mixing
from regard.functional.synthetic.spatial import spatial_mixing
from regard.functional.synthetic.synthesizer import synthesizer_attention

__all__ = [
    "biased_attention",
    "compressed_attention",
    "efficient_attention",
    "favor_attention",
    "fourier_mixing",
    "linear_attention",
    "lsh_attention",
    "pattern_attention",
    "projected_attention",
    "random_feature_attention",
    "relative_attention",
    "routed_attention",
    "scored_attention",
    "sinkhorn_attention",
    "softmax_attention",
    "spatial_mixing",
    "squared_relu_attention",
    "synthesizer_attention",
    "window_attention",
]
