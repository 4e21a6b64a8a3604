"""A recurrent network in the place of a mixer, for questions to compare with: no part of the catalogue.

gru   y = W_out GRU(x)

It is here, and not beside the questions, since a mixer of one's own must keep all laws: torch's GRU serves neither function
transforms nor a compiler.
"""

from torch import nn

from regard.core import Capabilities, Mixer, No
from regard.nn.starts import Glorot, glorot

_PLAIN = No("it is a baseline of the laboratory")


class Gru(Mixer):
    """Cho et al. 2014, with as many channels as the tokens have."""

    name = "gru"
    family = "recurrent"
    paper = "Cho et al. 2014, arXiv 1406.1078"
    capabilities = Capabilities(
        causal=True,
        bidirectional=No("it reads forwards alone"),
        pairwise=_PLAIN,
        global_tokens=_PLAIN,
        cross=_PLAIN,
        streaming=_PLAIN,
        attention_map=_PLAIN,
        positions=frozenset({"absolute"}),
        time="T D^2",
        memory="T D",
    )

    def __init__(self, dim: int):
        super().__init__(dim)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.out = Glorot(dim, dim)
        glorot(self)

    def mix(self, x, context, mask):
        return self.out(self.gru(x)[0])
