"""One mechanism per file. MIXERS lists them; a user's own class needs no entry: pass the class to `build`."""

from regard.core import Catalog, Mixer
from regard.mixers._groups import HeadGroup
from regard.mixers.bigbird import BigBird
from regard.mixers.build import build
from regard.mixers.compressed import Compressed
from regard.mixers.differential import Differential
from regard.mixers.efficient import Efficient
from regard.mixers.fixed_patterns import FixedPatterns
from regard.mixers.flash import Flash
from regard.mixers.fnet import FNet
from regard.mixers.forgetting import Forgetting
from regard.mixers.gated_delta import GatedDelta
from regard.mixers.gated_linear import GatedLinear
from regard.mixers.gau import GAU
from regard.mixers.global_ import Global
from regard.mixers.gmlp import GMLP
from regard.mixers.head_groups import HeadGroups
from regard.mixers.head_mix import HeadMix
from regard.mixers.indexed import Indexed
from regard.mixers.kimi_delta import KimiDelta
from regard.mixers.latent import Latent
from regard.mixers.linear import Linear
from regard.mixers.linformer import Linformer
from regard.mixers.local import Local
from regard.mixers.longformer import Longformer
from regard.mixers.luong_local import LuongLocal
from regard.mixers.mixed_chunk import MixedChunk
from regard.mixers.mixture import Mixture
from regard.mixers.mlp_mixer import MLPMixer
from regard.mixers.moba import MoBA
from regard.mixers.native_sparse import NativeSparse
from regard.mixers.nystrom import Nystrom
from regard.mixers.performer import Performer
from regard.mixers.reformer import Reformer
from regard.mixers.rfa import RFA
from regard.mixers.routing import Routing
from regard.mixers.scalar_decay import ScalarDecay
from regard.mixers.scored import Scored
from regard.mixers.sinkhorn import Sinkhorn
from regard.mixers.softmax import Softmax
from regard.mixers.strided import Strided
from regard.mixers.synthesizer_dense import SynthesizerDense
from regard.mixers.synthesizer_factorized_dense import SynthesizerFactorizedDense
from regard.mixers.synthesizer_factorized_random import SynthesizerFactorizedRandom
from regard.mixers.synthesizer_random import SynthesizerRandom
from regard.mixers.transformer_xl import TransformerXL

MIXERS: Catalog[type[Mixer]] = Catalog(
    "mixer",
    (
        Softmax,
        Scored,
        LuongLocal,
        Local,
        Strided,
        Global,
        HeadMix,
        HeadGroups,
        Longformer,
        BigBird,
        Reformer,
        Routing,
        Sinkhorn,
        Linformer,
        Compressed,
        Efficient,
        Linear,
        RFA,
        Performer,
        SynthesizerDense,
        SynthesizerRandom,
        SynthesizerFactorizedDense,
        SynthesizerFactorizedRandom,
        Mixture,
        FixedPatterns,
        MLPMixer,
        GMLP,
        FNet,
        GAU,
        Flash,
        MixedChunk,
        TransformerXL,
        ScalarDecay,
        GatedDelta,
        KimiDelta,
        GatedLinear,
        Latent,
        Forgetting,
        Differential,
        Nystrom,
        MoBA,
        Indexed,
        NativeSparse,
    ),
)
Mixer.catalogue = MIXERS

__all__ = ["MIXERS", "HeadGroup", "build"]
