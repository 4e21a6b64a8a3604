"""Adapters to Hugging Face Transformers: mechanisms in its models, its checkpoints in ours, and ours in its format."""

from importlib.util import find_spec

if find_spec("transformers") is None:
    raise ModuleNotFoundError(
        "regard.hf needs transformers, which is not installed: pip install 'regard[hf]'",
        name="transformers",
    )

from regard.core import check_calls
from regard.hf.attention import AttentionConfig
from regard.hf.convert import teach
from regard.hf.load import load, save
from regard.hf.registry import register
from regard.hf.states import StateCache
from regard.hf.wrap import AfterStep, convert, register_models, wrap

__all__ = [
    "AfterStep",
    "AttentionConfig",
    "StateCache",
    "convert",
    "load",
    "register",
    "register_models",
    "save",
    "teach",
    "wrap",
]

check_calls(globals(), __all__)
