"""One slow float64 oracle per mechanism, written from its paper with loops.

    regard.reference.<name>(params, options, x, *, context, causal, valid, pairwise, global_tokens, plan=None)
        -> (y [B T D], weights [B H T S] | None)

params: the module's state dict; options: the mixer's `options`; plan: its random or data-dependent structure.
"""

from regard.reference.fnet import fnet
from regard.reference.gau import gau
from regard.reference.linear import linear
from regard.reference.local import local
from regard.reference.softmax import softmax
from regard.reference.synthesizer_dense import synthesizer_dense

__all__ = [
    "fnet",
    "gau",
    "linear",
    "local",
    "softmax",
    "synthesizer_dense",
]
