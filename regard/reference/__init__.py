"""One slow float64 oracle per mechanism, written from its paper with loops.

    regard.reference.<name>(params, options, x, *, context, causal, valid, pairwise, global_tokens, plan=None)
        -> (y [B T D], weights [B H T S] | None)

params: the module's state dict; options: the mixer's `options`; plan: its random or data-dependent structure.
"""

from regard.reference.bigbird import bigbird
from regard.reference.compressed import compressed
from regard.reference.efficient import efficient
from regard.reference.fixed_patterns import fixed_patterns
from regard.reference.flash import flash
from regard.reference.fnet import fnet
from regard.reference.gau import gau
from regard.reference.global_ import global_
from regard.reference.gmlp import gmlp
from regard.reference.head_mix import head_mix
from regard.reference.linear import linear
from regard.reference.linformer import linformer
from regard.reference.local import local
from regard.reference.longformer import longformer
from regard.reference.luong_local import luong_local
from regard.reference.mixed_chunk import mixed_chunk
from regard.reference.mixture import mixture
from regard.reference.mlp_mixer import mlp_mixer
from regard.reference.performer import performer
from regard.reference.reformer import reformer
from regard.reference.rfa import rfa
from regard.reference.routing import routing
from regard.reference.scored import scored
from regard.reference.sinkhorn import sinkhorn
from regard.reference.softmax import softmax
from regard.reference.strided import strided
from regard.reference.synthesizer_dense import synthesizer_dense
from regard.reference.synthesizer_factorized_dense import synthesizer_factorized_dense
from regard.reference.synthesizer_factorized_random import synthesizer_factorized_random
from regard.reference.synthesizer_random import synthesizer_random
from regard.reference.transformer_xl import transformer_xl

globals()["global"] = global_  # the catalogue's name is a keyword

__all__ = [
    "bigbird",
    "compressed",
    "efficient",
    "fixed_patterns",
    "flash",
    "fnet",
    "gau",
    "global_",
    "gmlp",
    "head_mix",
    "linear",
    "linformer",
    "local",
    "longformer",
    "luong_local",
    "mixed_chunk",
    "mixture",
    "mlp_mixer",
    "performer",
    "reformer",
    "rfa",
    "routing",
    "scored",
    "sinkhorn",
    "softmax",
    "strided",
    "synthesizer_dense",
    "synthesizer_factorized_dense",
    "synthesizer_factorized_random",
    "synthesizer_random",
    "transformer_xl",
]
