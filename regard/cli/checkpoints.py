"""Checkpoints on the command line: the model of a folder, its inputs, and which of its outputs is explained."""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.cli.explore import Explore
from regard.core import (
    Count,
    OptionError,
    RegardError,
    StoredDataError,
    check_option,
    existing,
    is_whole,
    shown,
    visible,
)
from regard.core.files import plain
from regard.explore.attribution import Answer, last_logits
from regard.explore.inputs import Inputs, image_size
from regard.lab.data.windows import MASKED_VOCABULARY, START
from regard.nn.fields import Field, Numeric, Sequence

LONGEST = 100  # characters of a token
TRUTH = {"true": "1", "false": "0"}
TEXT = "The animal did not cross the street because it was too tired."


class Loaded(NamedTuple):
    """A model, how its inputs are made of what was given, and which of its outputs is explained."""

    model: nn.Module
    answer: Answer = last_logits
    tokenizer: Any = None
    classifier: Any = None

    def inputs(self, given: Explore) -> Inputs:
        translates = "target" in inspect.signature(self.model.forward).parameters
        if not translates and (given.target, given.target_tokens) != (None, None):
            raise OptionError(
                f"explore: --target and --target-tokens are for translators, which {given.checkpoint} is not"
            )
        if self.classifier:
            return _table(self.classifier, given)
        config = getattr(self.model, "config", None)
        size = image_size(config)
        kinds = getattr(config, "kinds", ())
        if given.file and size and given.file.suffix.lower() in IMAGES:
            return _pixels(given.file, size, config)
        unknown = self.tokenizer is None and None in (given.tokens, given.target_tokens)
        lacks = {
            "is a run on a table and keeps no schema. Fit and save a regard.lab.tables.TableClassifier": "table" in kinds,
            "reads vectors of numbers, which no option gives": "vectors" in kinds,
            f"reads pictures of {size} pixels. Give --file picture.png, or --tokens": size and given.tokens is None,
            "is a run on pairs of texts and keeps no vocabulary. Give --tokens and --target-tokens": "translate" in kinds
            and unknown,
        }  # fmt: skip
        for what, holds in lacks.items():
            if holds:
                raise OptionError(f"explore: {given.checkpoint} {what}.")
        if getattr(config, "name", None) == "han":
            return _document(given.tokens)
        ids, words = self._tokens(given, given.tokens, given.text, given.file)
        if not translates:
            return Inputs((ids,), words=words, labels=["the input"])
        target, others = self._tokens(given, given.target_tokens, given.target, None)
        return Inputs((ids, target), words=words, others=others, labels=["the input"])

    def _tokens(
        self, given: Explore, ids: str | None, text: str | None, file: Path | None
    ) -> tuple[Tensor, list[list[str]]]:
        content = None
        if file:
            with plain(file, copies=0).open("rb") as opened:
                content = opened.read(LONGEST * given.max_tokens)
            text = content.decode(errors="replace")
        text = TEXT if text is None else text
        if not is_whole(text):
            raise OptionError("explore: the text holds half a letter, which UTF-8 does not have")
        if ids is not None:
            found = _ids(ids)
        elif self.tokenizer:
            with tokenizing(given.checkpoint):
                found = self.tokenizer.encode(text).ids
        else:
            config = getattr(self.model, "config", None)
            size = getattr(config, "vocab_size", 0)
            least = START + ("classify" in getattr(config, "kinds", ()))  # 256 shades, and padding
            if not least <= size <= MASKED_VOCABULARY:
                what = f"its {size} ids are no bytes" if size else "its ids need one"
                raise OptionError(
                    f"explore: {given.checkpoint} has no tokenizer, and {what}. Give --tokens."
                )
            found = [byte + 1 for byte in content or text.encode()]
        found = found[: given.max_tokens]
        if not found:
            raise OptionError("explore: the text is empty. Give --text, --file or --tokens.")
        if self.tokenizer:
            words = words_of(self.tokenizer, found)
        else:
            words = [str(n) if ids is not None else chr(n - 1) for n in found]
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
        ids = [int(word.replace("_", "no digit")) for word in text.replace(",", " ").split()]
    except ValueError:
        raise OptionError(f"explore: --tokens must be whole numbers, got {shown(text)}") from None
    for one in ids:
        check_option("explore", "--tokens", one, Count)
    return ids


def _document(tokens: str | None) -> Inputs:
    from regard.models import pad_documents

    if tokens is None:
        raise OptionError(
            'explore: a run of HAN keeps no vocabulary. Give --tokens, sentences parted by "/"; '
            "regard.explore.page takes words too."
        )
    ids, valid = pad_documents([[_ids(sentence) for sentence in tokens.split("/")]])
    return Inputs((ids,), {"valid": valid}, labels=["the document"])


# ---------------------------------------------------------------------- images and tables


IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pgm")


def _pixels(path: Path, size: tuple[int, int], config: Any) -> Inputs:
    import numpy as np
    from PIL import Image

    colour = getattr(config, "channels", 1) == 3
    try:
        with Image.open(plain(path)) as image:
            resized = image.convert("RGB" if colour else "L").resize(size[::-1])
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise StoredDataError(f"explore: {path} is no image, or damaged: {error}") from None
    shades = torch.from_numpy(np.array(resized)).long()
    if colour:
        shades = shades.permute(2, 0, 1)
    tokens = (1 + shades.flatten() * (config.vocab_size - 1) // 256)[None]  # as tasks have them
    words = [[str(int(n)) for n in tokens[0]]]
    return Inputs((tokens,), words=words, labels=[path.name], image=size)


MOST_ROWS = 8  # of a table on one page


def _table(classifier: Any, given: Explore) -> Inputs:
    from regard.lab.data.own import column, read_delimited

    if given.file is None:
        raise OptionError("explore: a model of tables reads rows. Give --file rows.csv.")
    table = read_delimited(plain(given.file))
    schema = classifier.schema_
    columns = {
        f.name: [_cell(f, one, schema.ids) for one in column(table, f.name)[:MOST_ROWS]]
        for f in schema.fields
    }
    histories = getattr(classifier.module_.config, "sequences", ())
    words = None
    others = None
    if histories:
        first = histories[0]
        words = [["" if v is None else str(v) for v in cell] for cell in columns[first.name]]
        others = [[str(cell)] for cell in columns[first.of.name]]
    elif classifier.module_.name == "mmoe":
        others = [list(classifier.label_names_)] * MOST_ROWS
    return Inputs((schema.encode(columns),), words=words, others=others)


def _cell(field: Field, text: str, ids: Mapping[str, Mapping]) -> Any:
    """A cell as the training table had it: a number where its vocabulary has numbers; a sequence is a list in brackets, or parted by |, or else by spaces."""
    if isinstance(field, Numeric):
        try:
            return float(text.replace("_", "no digit") or "nan")  # float passes over 1_2
        except ValueError:
            raise OptionError(f"explore: {text!r} in {field.name} is no number") from None
    vocabulary = field.of if isinstance(field, Sequence) else field
    known = {str(value): value for value in ids[vocabulary.name]}

    def value(word: str) -> Any:
        if word not in known:
            with suppress(ValueError):  # 2.0 is the table's 2, and true its True
                number = float(TRUTH.get(word.lower(), word).replace("_", "no digit"))
                return number if number in ids[vocabulary.name] else word
        return known.get(word, word or None)  # what is empty is missing

    if vocabulary is field:
        return value(text)
    parts = text.split("|") if "|" in text else text.split()
    if text[:1] == "[" and text[-1:] == "]":  # as pandas and JSON write one
        try:
            if re.search(r"""['"]\s+['"]""", text):  # an array: Python would join the words
                raise ValueError
            parts = ["" if one is None else str(one) for one in ast.literal_eval(text)]
        except (TypeError, ValueError, SyntaxError):
            raise OptionError(f"explore: {text!r} in {field.name} is no list") from None
    return list(map(value, parts))


# ---------------------------------------------------------------------- checkpoints


def load(folder: Path) -> Loaded:
    """The model of a folder. Raises OptionError for what is none, StoredDataError for a damaged one."""
    if (folder.suffix == ".gguf" and folder.is_file()) or (folder / "config.json").is_file():
        return _hf(folder)
    if (folder / "state.json").is_file():
        from regard.lab.tables import TableClassifier

        found = TableClassifier.load(folder)
        return Loaded(found.module_, classifier=found)
    if (folder / "checkpoints").is_dir():
        from regard.lab import train

        return Loaded(train.load(folder))
    raise OptionError(
        f"explore: {folder} is no folder of `regard train` (checkpoints/), of TableClassifier.save (state.json), "
        "in the format of Hugging Face (config.json), nor a .gguf file"
    )


def _hf(folder: Path) -> Loaded:
    import regard.hf

    model = regard.hf.load(folder)
    head: Any = getattr(model, "logits", None) or getattr(model, "head", None)

    def answer(hidden: Tensor, valid: Tensor | None) -> Tensor:
        return last_logits(head(hidden), valid)

    return Loaded(model, Likeness() if head is None else answer, tokenizer_of(folder))


def tokenizer_of(checkpoint: Path) -> Any:
    """The tokenizer in a folder or a .gguf file, which neither cuts nor pads; None where there is none."""
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    within = checkpoint.suffix == ".gguf"
    path = checkpoint if within else checkpoint / "tokenizer.json"
    if not path.is_file():
        return None
    with tokenizing(path):
        if within:
            made = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
            tokenizer = made.backend_tokenizer
        else:
            tokenizer = Tokenizer.from_file(str(plain(path)))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@contextmanager
def tokenizing(path: Path) -> Iterator[None]:
    """StoredDataError for whatever a damaged tokenizer raises; where Rust panics, that is no Exception."""
    try:
        yield
    except RegardError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        said = visible(str(error))
        raise StoredDataError(f"the tokenizer of {path} is damaged: {said}") from None


class Likeness:
    """It tells how much the mean of a headless model's outputs is like that of the first input it was given, [B 1]."""

    first: Tensor | None = None

    def __call__(self, hidden: Tensor, valid: Tensor | None) -> Tensor:
        shown = existing(hidden[..., 0], valid).to(hidden)
        mean = (hidden * shown[..., None]).sum(1) / shown.sum(1, keepdim=True).clamp(min=1)
        if self.first is None:
            self.first = torch.nn.functional.normalize(mean[:1].detach(), dim=-1)
        return mean @ self.first.T
