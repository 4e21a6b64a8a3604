"""Checkpoints of Transformers as stacks of Regard's mixers: `model = regard.hf.load("folder")`, or of a state dict and config.

    hidden = model(tokens, valid=valid)      logits = model.head(hidden)      model.attention_maps(tokens, valid=valid)

Padding is as if absent, so that positions count valid tokens; Transformers' BERT counts columns, which is the same for
padding on the right. Weights come from safetensors alone, and nothing is run from a checkpoint.
"""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, load_model, save_model
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from regard.core import OptionError, RegardError, StoredDataError, UnsupportedError, shown, visible
from regard.core.files import number_in, path_error, plain, whole
from regard.core.memory import SMALL
from regard.functional.positions.rotary import Pairing
from regard.hf.config import STACK, RegardConfig, Settings
from regard.hf.convert import converted
from regard.hf.fields import Fields
from regard.hf.kinds import bert, decoders, hybrids, t5
from regard.hf.stack import EncoderDecoder, Stack
from regard.hf.weights import LoadRequest, Weights

Tensors = dict[str, Tensor]
CONFIG, WEIGHTS = "config.json", "model.safetensors"
INSIDE = "inside"
"""Prefix of a saved stack's tensors."""
SHARDS = f"model-{'[0-9]' * 5}-of-{'[0-9]' * 5}"
COPIES = 8  # bytes of tensors that a saved config may tell of, for each byte of its weights
LONGEST = 200  # characters of another library's error

KINDS = {
    **dict.fromkeys(("bert", "roberta", "longformer", "big_bird", "fnet"), bert.bert),
    "gpt2": decoders.gpt2,
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), decoders.llama),
    "gemma3_text": decoders.gemma3,
    "t5": t5.t5,
    "qwen3_next": hybrids.qwen3_next,
    "kimi_linear": hybrids.kimi_linear,
    "mamba2": hybrids.mamba2,
}
"""model_type of a config -> how its checkpoint is read."""


def load(
    source: str | Path | Mapping[str, Tensor],
    config: Settings | None = None,
    *,
    pairing: Pairing = "half",
) -> Stack | EncoderDecoder:
    """Reads a checkpoint as a stack of mixers: a folder with config.json and safetensors, a state dict and its config,
    or a .gguf file.

    source: tensors of a state dict have the shapes of Transformers' model. config: `model.config.to_dict()`. pairing: the
    channels that rotary positions turn together; "half" in Transformers' files, "adjacent" in those of Llama's first release.
    `left` of the result are tensors that were not read, and fields of the config, as "config.NAME", that may have an effect.
    Also reads what `save` wrote. Raises UnsupportedError for a kind of model, or a setting of one, that is not read,
    StoredDataError for files that are missing or damaged, and OptionError for arguments that do not go together.
    """
    if isinstance(source, str | Path):
        if config is not None:
            raise OptionError(
                "load: a folder has its own config.json; give config with a state dict"
            )
        source = Path(source)
        of_gguf = source.suffix == ".gguf"
        config = {} if of_gguf else read_config(source)
        saved = (config.get("model_type"), config.get("model")) == (RegardConfig.model_type, STACK)
        if pairing != "half" and (of_gguf or saved):
            raise OptionError(
                f"load: {shown(str(source))} says which channels are turned together: leave pairing out"
            )
        if of_gguf:
            return load(*_gguf(source))
        if saved:
            with described("saved stack"):
                return _tried(_saved(source, config["settings"]))
        source = _tensors(source)
    elif config is None:
        raise OptionError("load: a state dict needs its config: model.config.to_dict()")
    made = _built(source, config, pairing)
    with described(config["model_type"]):
        return _tried(made)


def _tried(model: Stack | EncoderDecoder) -> Any:
    """The model, once two tokens have passed through it: shapes of tensors that do not go together are found here."""
    tokens = model.embedding.word.weight.new_zeros(1, 2, dtype=torch.long)
    with torch.no_grad():
        if isinstance(model, EncoderDecoder):
            model.logits(model(tokens, tokens))
        else:
            (model.head or nn.Identity())(model(tokens))
    return model


def _built(
    tensors: Mapping[str, Tensor], config: Settings, pairing: Pairing
) -> Stack | EncoderDecoder:
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in KINDS:
        raise UnsupportedError(
            f"load does not support model_type {shown(kind)}: it reads {', '.join(KINDS)}"
        )
    if config.get("regard_attention"):
        raise UnsupportedError(
            f"load does not support attn_implementation {config.get('attn_implementation')!r}: it builds the attention of {kind}, which is "
            "not what this model was trained with. Open it by Transformers after regard.hf.register(), or leave regard_attention out "
            "of its config"
        )
    if pairing != "half" and KINDS[kind] not in (decoders.llama, decoders.gemma3):
        raise OptionError(
            f"load: {kind} has no rotary positions, so pairing={pairing!r} means nothing"
        )
    weights, fields = Weights(tensors), Fields(config)
    request = LoadRequest(weights, fields, pairing)
    with described(kind):
        request.require(per_layer_config=None)
        made = KINDS[kind](request)
    made.left = (*sorted(weights.left), *(f"config.{name}" for name in sorted(fields.left)))
    if isinstance(made, Stack):
        made.origin = {
            "config": fields.data,
            "pairing": pairing,
            "tensors": {
                name: [str(z.dtype).removeprefix("torch."), list(z.shape)]
                for name, z in tensors.items()
            },
            "conversions": [],
        }
    return made.eval()


def config_text(origin: Any) -> str:
    try:
        return RegardConfig.of_stack(origin).to_json_string()
    except TypeError as error:
        raise OptionError(f"save: an option or a field of the config is no JSON: {error}") from None


def save(model: nn.Module, folder: str | Path) -> None:
    """Write a loaded or converted stack as config.json and safetensors, which `load` reads. Nothing in it is code.

    A killed save leaves what was there or what is new: the weights hold the config too, so that they get their names in one step.
    It is the folder that `wrap(model).save_pretrained` would write. Raises UnsupportedError for what `load` did not make,
    OptionError for options that JSON cannot hold, PathError.
    """
    if not isinstance(model, Stack) or model.origin is None:
        raise UnsupportedError(
            f"save does not support {type(model).__name__}: it writes what regard.hf.load gave as one stack, with no part exchanged since"
        )
    text = config_text(model.origin)
    folder = Path(folder)
    if folder.is_dir() and not folder.is_symlink():
        with whole(folder / CONFIG) as config, whole(folder / WEIGHTS) as weights:
            _write(model, weights, text, config)
            (folder / CONFIG).unlink(missing_ok=True)
    else:
        with whole(folder) as partial:
            partial.mkdir()
            _write(model, partial / WEIGHTS, text, partial / CONFIG)


def _write(model: Stack, weights: Path, text: str, config: Path) -> None:
    try:
        save_model(nn.ModuleDict({INSIDE: model}), str(weights), {"format": "pt", CONFIG: text})
    except SafetensorError as error:
        raise path_error(weights, number_in(str(error)), str(error)) from error
    config.write_text(text, "utf-8")


@contextmanager
def described(kind: str) -> Iterator[None]:
    """What fails inside with an error of Python has been told something else than a model by its config."""
    try:
        yield
    except RegardError:
        raise
    except KeyError as error:
        raise StoredDataError(f"load: the config of this {kind} has no {error}") from error
    except Exception as error:
        why = f"{type(error).__name__}, {visible(str(error))[:LONGEST]}"
        raise StoredDataError(
            f"load: config and tensors of this {kind} make no model: {why}"
        ) from error


def restored(origin: Settings, size: float = math.inf) -> Stack:
    """A stack of this origin, with its conversions, whose weights mean nothing yet; size: bytes that they will have."""
    empty = {
        name: torch.zeros((), dtype=getattr(torch, dtype)).expand(shape)
        for name, (dtype, shape) in origin["tensors"].items()
    }
    model: Any = _built(empty, origin["config"], origin["pairing"])
    place = model.embedding.place  # a tiled table is in the file
    row = place.weight[0].nbytes if isinstance(place, nn.Embedding) else 1
    for change in origin["conversions"]:
        max_len = change["max_len"]
        if max_len is not None and max_len * row > size:
            raise StoredDataError(
                f"load: the config tells of max_len {max_len}, and its weights have {size:,} bytes"
            )
        model = converted(model, **change)
    return model.eval()


def _saved(folder: Path, origin: Settings) -> Stack:
    weights = _there(folder, WEIGHTS)
    size = weights.stat().st_size
    told = sum(
        math.prod(shape) * getattr(torch, dtype).itemsize
        for dtype, shape in origin["tensors"].values()
    )
    if told > COPIES * size + SMALL:  # those that were not read are told, and not written
        raise StoredDataError(
            f"load: {folder / CONFIG} tells of {told:,} bytes of tensors, and its weights have {size:,}"
        )
    model = restored(origin, size)
    saved = nn.ModuleDict({INSIDE: model})
    try:
        with safe_open(weights, "pt") as file:
            there = (pair for pair in saved.named_parameters() if pair[0] in file.keys())
            name, parameter = next(there)
            if (dtype := file.get_slice(name)[:1].dtype) != parameter.dtype:  # it was moved to one
                saved.to(dtype)
        load_model(saved, weights)
    except (OSError, SafetensorError, RuntimeError, StopIteration, TypeError) as error:
        raise StoredDataError(
            f"load: {weights} does not hold this model: {visible(str(error))[:LONGEST]}"
        ) from None
    return model


def _there(folder: Path, name: str) -> Path:
    if not (folder / name).is_file():
        raise StoredDataError(
            f"load: {folder} has no {name}, or it is no plain file. Name a folder that save_pretrained wrote: weights are "
            "read from safetensors alone, and nothing is downloaded."
        )
    return plain(folder / name, copies=2)


def read_config(folder: Path) -> dict[str, Any]:
    """config.json, or the copy in the weights, where a save was killed before the file had its name."""
    path = folder / CONFIG
    text = None
    if not path.exists() and (folder / WEIGHTS).is_file():
        with suppress(SafetensorError), safe_open(folder / WEIGHTS, "pt") as weights:
            text = (weights.metadata() or {}).get(CONFIG)
    if text is None:
        text = _there(folder, CONFIG).read_bytes()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoredDataError(f"load: {path} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise StoredDataError(f"load: {path} is no object of settings")
    return found


def _gguf(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """Tensors and config as Transformers reads them: in float32, rotary rows in its own order."""
    _there(path.parent, path.name)
    if find_spec("gguf") is None:
        raise UnsupportedError(
            "load does not support GGUF files without their reader: pip install gguf"
        )
    try:
        found: Any = AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32, output_loading_info=True
        )
    except Exception as error:  # its reader and Transformers have many
        why = visible(str(error))[:LONGEST]
        raise StoredDataError(f"load: {path} is no GGUF file, or damaged: {why}") from None
    model, told = found
    if missing := sorted(told["missing_keys"]):
        raise StoredDataError(f"load: {path} lacks {', '.join(missing)}")
    config = model.config.to_dict()
    del config["quantization_config"]  # what was quantised is float32 now
    return model.state_dict(), config


def _tensors(folder: Path) -> Tensors:
    """The tensors of one file, or of all parts `model-00001-of-00002.safetensors`, whose names say how many there are."""
    parts = sorted(path.name for path in folder.glob(f"{SHARDS}.safetensors"))
    names = [WEIGHTS] if (folder / WEIGHTS).exists() or not parts else parts
    if names is parts and {name[-17:-12] for name in names} != {f"{len(names):05}"}:
        raise StoredDataError(
            f"load: {folder} has {len(parts)} parts of weights, and not as many as their names say"
        )
    tensors: Tensors = {}
    for name in names:
        try:
            tensors |= load_file(_there(folder, name))
        except SafetensorError as error:
            raise StoredDataError(f"load: {folder / name} is damaged: {error}") from None
    return tensors
