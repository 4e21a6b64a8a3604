"""Checkpoints on the command line: the model of a folder, its inputs, and which of its outputs is explained."""

import csv
import dataclasses
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, get_type_hints

import torch
from torch import Tensor, nn

from regard.cli.explore import Explore
from regard.core import OptionError, StoredDataError
from regard.core.errors import visible
from regard.core.files import plain
from regard.core.options import tuples
from regard.explore.attribution import Answer, last_logits
from regard.explore.inputs import Inputs
from regard.nn.fields import Categorical, Field, Numeric, Sequence

BYTES = 257  # ids of a byte-level model: padding, and each byte + 1
TEXT = "The animal did not cross the street because it was too tired."


@dataclass(frozen=True)
class Loaded:
    """A model, how its inputs are made of what was given, and which of its outputs is explained."""

    model: nn.Module
    kind: str
    answer: Answer = last_logits
    tokenizer: Any = None
    classifier: Any = None

    def inputs(self, given: Explore) -> Inputs:
        if self.classifier is not None:
            return _table(self.classifier, given)
        config = getattr(self.model, "config", None)
        size = _image_size(config)
        if given.file is not None and size is not None and _is_image(given.file):
            return _pixels(given.file, size, config)
        self._check_given(given, size)
        if getattr(config, "name", None) == "han":
            return _document(given.tokens)
        ids, words = self._tokens(given, given.tokens, given.text, given.file)
        args: tuple[Any, ...] = (ids,)
        others = None
        if _takes_target(self.model):
            target, others = self._tokens(given, given.target_tokens, given.target, None)
            args = (ids, target)
        return Inputs(args, words=words, others=others, labels=["the input"])

    def _check_given(self, given: Explore, image: tuple[int, int] | None) -> None:
        """Raises OptionError for what this model cannot read."""
        kinds = getattr(getattr(self.model, "config", None), "kinds", ())
        if "table" in kinds:
            raise OptionError(
                f"explore: {given.checkpoint} is a run on a table and keeps no schema. "
                "Fit and save a regard.lab.tables.TableClassifier."
            )
        if image is not None and given.tokens is None:
            raise OptionError(
                f"explore: {given.checkpoint} reads pictures of {image[0]} x {image[1]}. Give --file picture.png, or --tokens."
            )
        if (
            "translate" in kinds
            and self.tokenizer is None
            and (given.tokens is None or given.target_tokens is None)
        ):
            raise OptionError(
                f"explore: {given.checkpoint} is a run on pairs of texts and keeps no vocabulary. "
                "Give --tokens and --target-tokens."
            )

    def _tokens(
        self, given: Explore, ids: str | None, text: str | None, file: Path | None
    ) -> tuple[Tensor, list[list[str]]]:
        if ids is not None:
            found = _ids(ids)[: given.max_tokens]
            words = [str(n) for n in found]
            if self.tokenizer is not None:
                words = words_of(self.tokenizer, found)
            return torch.tensor([found]), [words]
        if file is not None:
            text = plain(file).read_text(encoding="utf-8", errors="replace")
        text = TEXT if text is None else text
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise OptionError("explore: the text holds half a letter, which UTF-8 does not have")
        if self.tokenizer is not None:
            found = self.tokenizer.encode(text).ids[: given.max_tokens]
            words = words_of(self.tokenizer, found)
        else:
            size = getattr(getattr(self.model, "config", None), "vocab_size", 0)
            if size < BYTES:
                raise OptionError(
                    f"explore: {given.checkpoint} has no tokenizer, and its {size} ids are no bytes. Give --tokens."
                )
            raw = text.encode()[: given.max_tokens]
            found = [byte + 1 for byte in raw]
            words = [bytes([byte]).decode("latin-1") for byte in raw]
        if not found:
            raise OptionError("explore: the text is empty. Give --text, --file or --tokens.")
        return torch.tensor([found]), [words]


def words_of(tokenizer: Any, ids: list[int]) -> list[str]:
    """Each token as a reader knows it: byte-level ones as text, where they are whole letters; the others by their name."""
    from tokenizers.decoders import ByteLevel

    names = [tokenizer.id_to_token(n) or str(n) for n in ids]
    if not isinstance(tokenizer.decoder, ByteLevel):
        return names
    texts = [tokenizer.decode([n], skip_special_tokens=False) for n in ids]
    return [
        text if text and "\ufffd" not in text else name
        for text, name in zip(texts, names, strict=True)
    ]


def _ids(text: str) -> list[int]:
    try:
        return [int(word) for word in text.replace(",", " ").split()]
    except ValueError:
        raise OptionError(f"explore: --tokens must be whole numbers, got {text!r}") from None


def _document(tokens: str | None) -> Inputs:
    from regard.models import pad_documents

    if tokens is None:
        raise OptionError(
            'explore: a run of HAN keeps no vocabulary. Give --tokens, sentences parted by "/"; '
            "regard.explore.page takes words too."
        )
    ids, valid = pad_documents([[_ids(sentence) for sentence in tokens.split("/")]])
    return Inputs((ids,), {"valid": valid}, labels=["the document"])


def _takes_target(model: nn.Module) -> bool:
    return "target" in inspect.signature(model.forward).parameters


# ---------------------------------------------------------------------- images and tables


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pgm")


def _image_size(config: Any) -> tuple[int, int] | None:
    options = getattr(config, "position_options", None) or {}
    return getattr(config, "image_size", None) or options.get("shape") or options.get("grid")


def _pixels(path: Path, size: tuple[int, int], config: Any) -> Inputs:
    import numpy as np
    from PIL import Image

    colour = getattr(config, "channels", 1) == 3
    with Image.open(plain(path)) as image:
        resized = image.convert("RGB" if colour else "L").resize((size[1], size[0]))
    shades = torch.from_numpy(np.array(resized)).long()
    if colour:
        shades = shades.permute(2, 0, 1)
    tokens = (1 + shades.flatten() * (config.vocab_size - 1) // 256)[None]  # as tasks have them
    words = [[str(int(n)) for n in tokens[0]]]
    return Inputs((tokens,), words=words, labels=[path.name], image=size)


MOST_ROWS = 8  # of a table on one page


def _table(classifier: Any, given: Explore) -> Inputs:
    if given.file is None:
        raise OptionError("explore: a model of tables reads rows. Give --file rows.csv.")
    with plain(given.file).open(newline="", encoding="utf-8") as file:
        between = "\t" if given.file.suffix == ".tsv" else ","
        try:
            rows = list(islice(csv.DictReader(file, delimiter=between, strict=True), MOST_ROWS))
        except (csv.Error, UnicodeDecodeError) as error:
            raise OptionError(f"explore: {given.file} is no table in UTF-8: {error}") from None
    if not rows:
        raise OptionError(f"explore: {given.file} has no rows below its heading")
    for n, row in enumerate(rows, 1):
        if None in row.values():
            raise OptionError(f"explore: row {n} has fewer cells than the heading of {given.file}")
    schema = classifier.schema_
    absent = [field.name for field in schema.fields if field.name not in rows[0]]
    if absent:
        raise OptionError(f"explore: {given.file} lacks the columns {', '.join(absent)}")
    columns = {
        f.name: [_cell(f, n, row[f.name], schema.ids) for n, row in enumerate(rows, 1)]
        for f in schema.fields
    }
    batch = {name: torch.as_tensor(z) for name, z in schema.encode(columns).items()}
    labels = [f"row {n + 1}" for n in range(len(rows))]
    sequences = getattr(classifier.module_.config, "history", ())
    words = others = None
    if sequences:
        first = next(f for f in schema.fields if f.name == sequences[0])
        words = [[str(v) for v in cell] for cell in columns[first.name]]
        others = [[str(cell)] for cell in columns[first.of.name]]
    elif classifier.module_.name == "mmoe":
        others = [list(classifier.label_names_)] * len(rows)
    return Inputs((batch,), words=words, others=others, labels=labels)


def _cell(field: Field, n: int, text: str, ids: Mapping[str, Mapping]) -> Any:
    """A cell as the training table had it: a number where its vocabulary has numbers; a sequence is parted by spaces or |."""
    if isinstance(field, Numeric):
        try:
            return float(text or "nan")
        except ValueError:
            raise OptionError(
                f"explore: row {n} of {field.name} is {text!r}, which is no number"
            ) from None
    if isinstance(field, Sequence):
        known = ids[field.of.name]
        return [_value(part, known) for part in text.replace("|", " ").split()]
    return _value(text, ids[field.name])


def _value(text: str, known: Mapping) -> Any:
    if text in known:
        return text
    try:
        return int(text) if int(text) in known else text
    except ValueError:
        return text


# ---------------------------------------------------------------------- checkpoints


def load(folder: Path) -> Loaded:
    """The model of a folder. Raises OptionError for what is none, StoredDataError for a damaged one."""
    if (folder.suffix == ".gguf" and folder.is_file()) or (folder / "config.json").is_file():
        return _hf(folder)
    if (folder / "state.json").is_file():
        from regard.lab.tables import TableClassifier

        found = TableClassifier.load(folder)
        return Loaded(found.module_, "table", classifier=found)
    if (folder / "checkpoints").is_dir():
        return _run(folder)
    raise OptionError(
        f"explore: {folder} is no folder of `regard train` (checkpoints/), of TableClassifier.save (state.json), "
        "in the format of Hugging Face (config.json), nor a .gguf file"
    )


def _hf(folder: Path) -> Loaded:
    import regard.hf

    model: Any = regard.hf.load(folder)
    head = getattr(model, "head", None)
    if hasattr(model, "logits"):
        answer: Answer = lambda hidden, valid: last_logits(model.logits(hidden), valid)  # noqa: E731
    elif head is not None:
        answer = lambda hidden, valid: last_logits(head(hidden), valid)  # noqa: E731
    else:
        answer = Likeness()
    return Loaded(model, "hf", answer, tokenizer_of(folder))


def tokenizer_of(checkpoint: Path) -> Any:
    """The tokenizer in a folder or a .gguf file, which neither cuts nor pads; None where there is none."""
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    within = checkpoint.suffix == ".gguf"
    path = checkpoint if within else checkpoint / "tokenizer.json"
    if not path.is_file():
        return None
    try:
        if within:
            made = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
            tokenizer = made.backend_tokenizer
        else:
            tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises no other
        raise StoredDataError(f"{path} is damaged: {visible(str(error))}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


class Likeness:
    """How much the mean of a headless model's outputs is like that of the first input it was given, [B 1]."""

    def __init__(self) -> None:
        self.first: Tensor | None = None

    def __call__(self, hidden: Tensor, valid: Tensor | None) -> Tensor:
        shown = hidden.new_ones(hidden.shape[:2]) if valid is None else valid.to(hidden)
        mean = (hidden * shown[..., None]).sum(1) / shown.sum(1, keepdim=True).clamp(min=1)
        if self.first is None:
            self.first = torch.nn.functional.normalize(mean[:1].detach(), dim=-1)
        return mean @ self.first.T


def _run(folder: Path) -> Loaded:
    from regard.lab.train import checkpoint
    from regard.lab.train.transfer import take_weights

    found = checkpoint.committed(folder / "checkpoints")
    if not found:
        raise OptionError(f"explore: there is no checkpoint in {folder} yet")
    try:
        stored = json.loads(plain(found[-1] / checkpoint.STATE).read_text())
        described = stored["state"]["run"]["model"]
        config = config_of(described)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise StoredDataError(
            f"{folder} does not say which model it holds ({error!r}): only runs of `regard train` do. "
            "Build the model, and call regard.explore.page."
        ) from error
    model = config.build()
    taken = take_weights(model, folder)
    if taken.left:
        raise StoredDataError(f"{folder} lacks {', '.join(taken.left[:3])} of its own model")
    return Loaded(model.eval(), "run")


def config_of(described: Mapping[str, Any]) -> Any:
    """The configuration that a run has written down as JSON."""
    from regard.models import MODELS
    from regard.models.config import Layer

    options = dict(described)
    cls = get_type_hints(MODELS[options.pop("name")].__init__)["config"]
    known = {field.name: field for field in dataclasses.fields(cls) if field.init}
    made = {name: tuples(value) for name, value in options.items() if name in known}
    if isinstance(made.get("mixer"), tuple):
        made["mixer"] = tuple(Layer(**layer) for layer in made["mixer"])
    if "fields" in made:
        made["fields"] = tuple(_field(field) for field in made["fields"])
    return cls(**made)


def _field(plain: Mapping[str, Any]) -> Field:
    if "of" in plain:
        return Sequence(plain["name"], Categorical(**plain["of"]))
    return Categorical(**plain) if "size" in plain else Numeric(**plain)
