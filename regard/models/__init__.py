"""Whole models around any mixer: `Classifier(ClassifierConfig(...))`, `LanguageModel(LanguageModelConfig(...))`."""

from typing import Any

from regard.core import Catalog
from regard.models.block import Block, layers_per_block
from regard.models.classifier import Classifier, ClassifierConfig
from regard.models.config import StackConfig
from regard.models.decoder import Decoder, EncoderDecoderConfig
from regard.models.encoder import Encoder
from regard.models.language_model import LanguageModel, LanguageModelConfig
from regard.models.search import Beams, reorder
from regard.models.sizing import count_parameters, match_parameters
from regard.models.transformer import (
    Transformer,
    TransformerConfig,
    transformer_base,
    transformer_big,
    transformer_small,
)

MODELS: Catalog[Any] = Catalog(
    "model",
    (
        Classifier,
        LanguageModel,
        Transformer,
    ),
)

__all__ = [
    "MODELS",
    "Beams",
    "Block",
    "Classifier",
    "ClassifierConfig",
    "Decoder",
    "Encoder",
    "EncoderDecoderConfig",
    "LanguageModel",
    "LanguageModelConfig",
    "StackConfig",
    "Transformer",
    "TransformerConfig",
    "count_parameters",
    "layers_per_block",
    "match_parameters",
    "reorder",
    "transformer_base",
    "transformer_big",
    "transformer_small",
]
