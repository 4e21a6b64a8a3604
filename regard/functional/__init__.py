"""Parameter-free mathematics by kernel family. q [B H T K], k [B G S K], v [B G S V], as in torch's own SDPA."""

from regard.functional.biased import biased_attention
from regard.functional.compressed import compressed_attention
from regard.functional.efficient import efficient_attention
from regard.functional.favor import favor_attention
from regard.functional.fourier import fourier_mixing
from regard.functional.hashed import lsh_attention
from regard.functional.linear import linear_attention
from regard.functional.lowrank import projected_attention
from regard.functional.pattern import pattern_attention
from regard.functional.random_feature import random_feature_attention
from regard.functional.relative import relative_attention
from regard.functional.routed import routed_attention
from regard.functional.scores import scored_attention
from regard.functional.softmax import softmax_attention
from regard.functional.sorted import sinkhorn_attention
from regard.functional.spatial import spatial_mixing
from regard.functional.squared_relu import squared_relu_attention
from regard.functional.synthesizer import synthesizer_attention
from regard.functional.window import window_attention

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
