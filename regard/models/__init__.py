"""Whole models around any mixer: `Classifier(ClassifierConfig(...))`, `LanguageModel(LanguageModelConfig(...))`."""

from typing import Any

from regard.core import Catalog, check_calls
from regard.models.autoint import AutoInt, AutoIntConfig
from regard.models.baselines import (
    FactorizationMachine,
    FactorizationMachineConfig,
    LogisticRegression,
    LogisticRegressionConfig,
)
from regard.models.blocks import Block, layers_per_block
from regard.models.classifier import Classifier, ClassifierConfig
from regard.models.config import Layer, ModelConfig, StackConfig
from regard.models.corruption import Corrupted, corrupt
from regard.models.crosses import (
    CompressedInteraction,
    CompressedInteractionConfig,
    CrossNetwork,
    CrossNetworkConfig,
)
from regard.models.decoder import Decoder, EncoderDecoderConfig
from regard.models.din import DIN, DINConfig
from regard.models.dual_encoder import DualEncoder, DualEncoderConfig
from regard.models.encoder import Encoder
from regard.models.generation import Beams, reorder
from regard.models.han import HAN, HANConfig, Reading, pad_documents
from regard.models.language_model import LanguageModel, LanguageModelConfig
from regard.models.masked_language_model import MaskedLanguageModel, MaskedLanguageModelConfig
from regard.models.mmoe import MMoE, MMoEConfig
from regard.models.patches import PatchClassifier, PatchClassifierConfig
from regard.models.published.bigbird import bigbird
from regard.models.published.decoders import gemma3, llama3, qwen3
from regard.models.published.flash import flash, flash_quad
from regard.models.published.fnet import fnet
from regard.models.published.gmlp import gmlp, gmlp_image
from regard.models.published.linformer import linformer
from regard.models.published.longformer import longformer
from regard.models.published.mlp_mixer import mlp_mixer
from regard.models.published.performer import performer
from regard.models.published.recurrent import kimi_linear, mamba2, qwen3_next, retnet
from regard.models.published.reformer import reformer
from regard.models.published.stack import Published
from regard.models.published.synthesizer import synthesizer
from regard.models.sizing import count_parameters, match_parameters
from regard.models.transformer import (
    Transformer,
    TransformerConfig,
    transformer_base,
    transformer_big,
    transformer_small,
)
from regard.models.transformer_xl import (
    TransformerXL,
    TransformerXLConfig,
    transformer_xl_enwik8_base,
    transformer_xl_enwik8_large,
    transformer_xl_small,
    transformer_xl_wikitext_base,
)
from regard.models.xlnet import XLNet, XLNetConfig, xlnet_base, xlnet_large, xlnet_small
from regard.models.xlnet_classifier import (
    XLNetClassifier,
    XLNetClassifierConfig,
    XLNetMatcher,
    XLNetMatcherConfig,
)

MODELS: Catalog[Any] = Catalog(
    "model",
    (
        Classifier,
        LanguageModel,
        Transformer,
        MaskedLanguageModel,
        DualEncoder,
        TransformerXL,
        XLNet,
        XLNetClassifier,
        XLNetMatcher,
        HAN,
        AutoInt,
        DIN,
        MMoE,
        LogisticRegression,
        FactorizationMachine,
        CrossNetwork,
        CompressedInteraction,
        PatchClassifier,
        reformer,
        longformer,
        bigbird,
        performer,
        linformer,
        fnet,
        gmlp,
        gmlp_image,
        mlp_mixer,
        synthesizer,
        flash_quad,
        flash,
        llama3,
        qwen3,
        gemma3,
        retnet,
        mamba2,
        qwen3_next,
        kimi_linear,
    ),
)

__all__ = [
    "DIN",
    "HAN",
    "MODELS",
    "AutoInt",
    "AutoIntConfig",
    "Beams",
    "Block",
    "Classifier",
    "ClassifierConfig",
    "CompressedInteraction",
    "CompressedInteractionConfig",
    "Corrupted",
    "CrossNetwork",
    "CrossNetworkConfig",
    "DINConfig",
    "Decoder",
    "DualEncoder",
    "DualEncoderConfig",
    "Encoder",
    "EncoderDecoderConfig",
    "FactorizationMachine",
    "FactorizationMachineConfig",
    "HANConfig",
    "LanguageModel",
    "LanguageModelConfig",
    "Layer",
    "LogisticRegression",
    "LogisticRegressionConfig",
    "MMoE",
    "MMoEConfig",
    "MaskedLanguageModel",
    "MaskedLanguageModelConfig",
    "ModelConfig",
    "PatchClassifier",
    "PatchClassifierConfig",
    "Published",
    "Reading",
    "StackConfig",
    "Transformer",
    "TransformerConfig",
    "TransformerXL",
    "TransformerXLConfig",
    "XLNet",
    "XLNetClassifier",
    "XLNetClassifierConfig",
    "XLNetConfig",
    "XLNetMatcher",
    "XLNetMatcherConfig",
    "bigbird",
    "corrupt",
    "count_parameters",
    "flash",
    "flash_quad",
    "fnet",
    "gemma3",
    "gmlp",
    "gmlp_image",
    "kimi_linear",
    "layers_per_block",
    "linformer",
    "llama3",
    "longformer",
    "mamba2",
    "match_parameters",
    "mlp_mixer",
    "pad_documents",
    "performer",
    "qwen3",
    "qwen3_next",
    "reformer",
    "reorder",
    "retnet",
    "synthesizer",
    "transformer_base",
    "transformer_big",
    "transformer_small",
    "transformer_xl_enwik8_base",
    "transformer_xl_enwik8_large",
    "transformer_xl_small",
    "transformer_xl_wikitext_base",
    "xlnet_base",
    "xlnet_large",
    "xlnet_small",
]

check_calls(globals(), {*__all__} - {"pad_documents"})  # which checks more than types
