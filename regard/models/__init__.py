"""Whole models around any mixer: `Classifier(ClassifierConfig(...))`, `LanguageModel(LanguageModelConfig(...))`."""

from regard.core import Catalog
from regard.models.block import Block, layers_per_block
from regard.models.classifier import Classifier, ClassifierConfig
from regard.models.config import StackConfig
from regard.models.encoder import Encoder
from regard.models.language_model import LanguageModel, LanguageModelConfig
from regard.models.search import Beams, reorder
from regard.models.sizing import count_parameters, match_parameters

MODELS: Catalog[type[Classifier] | type[LanguageModel]] = Catalog(
    "model", (Classifier, LanguageModel)
)

__all__ = [
    "MODELS",
    "Beams",
    "Block",
    "Classifier",
    "ClassifierConfig",
    "Encoder",
    "LanguageModel",
    "LanguageModelConfig",
    "StackConfig",
    "count_parameters",
    "layers_per_block",
    "match_parameters",
    "reorder",
]
