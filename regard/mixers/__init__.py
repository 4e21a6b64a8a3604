"""One mechanism per file. MIXERS lists them; a user's own class needs no entry: pass the class to `build`."""

from regard.core import Catalog, Mixer
from regard.mixers.build import build
from regard.mixers.fnet import FNet
from regard.mixers.gau import GAU
from regard.mixers.linear import Linear
from regard.mixers.local import Local
from regard.mixers.softmax import Softmax
from regard.mixers.synthesizer_dense import SynthesizerDense

MIXERS: Catalog[type[Mixer]] = Catalog(
    "mixer",
    (
        Softmax,
        Linear,
        Local,
        SynthesizerDense,
        FNet,
        GAU,
    ),
)

__all__ = ["MIXERS", "build"]
