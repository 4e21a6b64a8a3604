"""The parts of a page: inputs with their words, and groups of weights with names for their rows and columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.core import CheckedOptions, OptionError, Options, ShapeError, UnsupportedError, existing
from regard.explore.readout import (
    FIRST,
    SECOND,
    Kind,
    Layer,
    Measure,
    check_taken,
    kind_of,
    layers,
    validity,
)
from regard.models import DIN, HAN, AutoInt, MMoE, PatchClassifier
from regard.models.generation import evaluating
from regard.nn.fields import MISSING

Words = Sequence[Sequence[str]]
ImageSize = tuple[int, int] | None
"""Height and width, where tokens are pixels or patches."""


@dataclass(frozen=True)
class Inputs(metaclass=CheckedOptions):
    """model(*args, **kwargs), and the words to show for the first argument and for the second, one list for each row.

    Models of tables: words name a row's history, others its candidate (DIN), the tasks (MMoE). image: height and width where tokens are
    pixels row by row. labels: a name for each row of the batch.
    """

    args: tuple
    kwargs: Options = field(default_factory=dict)
    words: Words | None = None
    others: Words | None = None
    labels: Sequence[str] | None = None
    image: ImageSize = None

    @property
    def rows(self) -> int:
        first = self.args[0] if self.args else next(iter(self.kwargs.values()), None)
        if isinstance(first, Mapping):
            first = next(iter(first.values()), None)
        if not isinstance(first, Tensor) or first.ndim == 0:
            raise ShapeError(
                f"page: the first input must be a tensor with rows, got {type(first).__name__}"
            )
        return len(first)

    def row(self, given: Words | None, row: int) -> list[str] | None:
        """The words of one row. Raises OptionError where there are none for it."""
        if given is None:
            return None
        if row >= len(given):
            raise OptionError(
                f"page: words are given for {len(given)} rows, and the inputs have {self.rows}"
            )
        return [str(word) for word in given[row]]


def as_inputs(given: Any, model: Any) -> Inputs:
    """A tensor, a tuple of arguments, a mapping (of arguments by name, or a batch of the model's fields), or Inputs."""
    columns = {one.name for one in getattr(getattr(model, "config", None), "fields", ())}
    arguments = {"tokens", "source", "first", "valid"} - columns
    if isinstance(given, Mapping) and arguments & set(given):
        given = Inputs((), dict(given))
    if isinstance(given, Inputs):
        found = dict(given.kwargs)
        names = ("tokens", "source", "target", "first", "second")
        args = given.args or tuple(found.pop(name) for name in names if name in found)
        return replace(given, args=args, kwargs=found)
    return Inputs(given if isinstance(given, tuple) else (given,))


def image_size(config: Any) -> ImageSize:
    """Height and width of the images whose patches or pixels a model of this configuration reads."""
    options = getattr(config, "position_options", None) or {}
    return getattr(config, "image_size", None) or options.get("shape") or options.get("grid")


class Sheet(NamedTuple):
    """One layer of a group for one row of the batch: values [H T S]."""

    name: str
    mechanism: str
    kind: Kind
    values: Float[Tensor, "H T S"]


class Group(NamedTuple):
    """Layers of one size with names for queries and keys; cross: keys are other tokens than the queries. calls: their places among all."""

    name: str
    rows: list[str]
    cols: list[str]
    cross: bool
    sheets: list[Sheet]
    prefix: int = 0
    calls: Sequence[int] = ()


Groups = list[Group]


class Reading(NamedTuple):
    """The parts of a page for one row of the batch.

    document: words of each sentence, their weights in it, and the weights of the sentences in the document.
    """

    label: str
    groups: Groups
    document: dict[str, list] | None = None


@torch.no_grad()
def readings(
    model: nn.Module, inputs: Inputs, *, measure: Measure, probes: int | None
) -> list[Reading]:
    """One for each row. Raises UnsupportedError where the model has nothing to show."""
    table = next((make for cls, make in _TABLES.items() if isinstance(model, cls)), None)
    if measure == "influence" and (table or isinstance(model, HAN)):
        raise UnsupportedError(
            f"page does not support influence for {type(model).__name__}: it shows weights alone"
        )
    with evaluating(model):
        if isinstance(model, HAN):
            return _documents(model, inputs)
        if table:
            found = [table(model, inputs, row) for row in range(inputs.rows)]
        else:
            read = layers(model, *inputs.args, measure=measure, probes=probes, **inputs.kwargs)
            found = [_groups(read, inputs, row, model) for row in range(inputs.rows)]
    return [Reading(_label(inputs, row), groups) for row, groups in enumerate(found)]


def _label(inputs: Inputs, row: int) -> str:
    if inputs.labels and row < len(inputs.labels):
        return str(inputs.labels[row])
    return f"row {row + 1}"


def numbered(
    words: list[str] | None, count: int, valid: Bool[Tensor, "T"] | None = None
) -> list[str]:
    """The words, at the tokens that are valid where there are as many of those, and nothing at the others; without words, numbers from 1."""
    if words is None:
        return [str(n + 1) for n in range(count)]
    places: Sequence[int] = range(count)
    if valid is not None and valid.sum() == len(words):
        places = valid.nonzero().flatten().tolist()
    found = dict(zip(places, words, strict=False))
    return [found.get(n, "") for n in range(count)]


def valid_of(inputs: Inputs, second: bool, row: int) -> Bool[Tensor, "T"] | None:
    found = validity(inputs.kwargs, SECOND if second else FIRST)
    return None if found is None else found[row]


def _groups(read: list[Layer], inputs: Inputs, row: int, model: nn.Module) -> Groups:
    gathered = dict[tuple, dict[int, Layer]]()
    for place, layer in enumerate(read):
        name = _group_name(layer, model)
        shape = tuple(layer.found.values.shape[1:])
        gathered.setdefault((name, shape, layer.found.prefix), {})[place] = layer
    words = inputs.row(inputs.words, row)
    others = inputs.row(inputs.others, row)
    groups = []
    for (name, (_, T, S), prefix), parts in gathered.items():
        path, time, _, cross, _ = next(iter(parts.values()))
        # the mixer of a DecoderBlock, or of a second input
        second = cross or "self_mixer" in path or time == 1
        queries = others if second else words
        keys = words if cross or not second else others
        if isinstance(model, PatchClassifier):
            across = model.config.image_size[1] // model.config.patch_size
            places = (divmod(n, across) for n in range(model.config.num_patches))
            queries = keys = [f"row {row + 1}, column {column + 1}" for row, column in places]
        rows = numbered(queries, T, valid_of(inputs, queries is others, row))
        cols = numbered(keys, S - prefix, valid_of(inputs, keys is others, row))
        cols = [f"external {n + 1}" for n in range(prefix)] + cols
        sheets = [
            Sheet(path or mixer.name, mixer.name, found.kind, found.values[row])
            for path, _, mixer, _, found in parts.values()
        ]
        groups.append(Group(name, rows, cols, cross, sheets, prefix, [*parts]))
    return groups


def _group_name(layer: Layer, model: nn.Module) -> str:
    top = layer.path.split(".")[0]
    stack = top or "mixer"
    if top == "blocks":
        stack = "decoder" if hasattr(model, "encoder") else "layers"
    part = "cross-attention" if layer.cross else "self"
    again = f", call {layer.time + 1}" if layer.time else ""
    return f"{stack}, {part}{again}"


# ---------------------------------------------------------------------- models of tables and documents


def _din(model: DIN, inputs: Inputs, row: int) -> Groups:
    """This row's history for the candidates of all rows."""
    batch = inputs.args[0]
    model.check(batch)
    histories = {sequence.name for sequence in model.config.sequences}
    given = {
        name: z[row : row + 1].expand_as(z) if name in histories else z for name, z in batch.items()
    }
    weights = model.weights(given)[None]
    first = model.config.sequences[0]
    ids = batch[first.of.name].tolist()
    targets = [(inputs.row(inputs.others, b) or [str(id)])[0] for b, id in enumerate(ids)]
    items = inputs.row(inputs.words, row)
    items = [str(int(n)) for n in batch[first.name][row]] if items is None else items
    sheet = Sheet(
        f"{model.pool.name}, {first.name}", model.pool.name, kind_of(weights[None]), weights
    )
    names = numbered(items, weights.shape[2], batch[first.name][row] != MISSING)
    return [Group("history", targets, names, True, [sheet])]


def _autoint(model: AutoInt, inputs: Inputs, row: int) -> Groups:
    names = [field.name for field in model.config.fields]
    sheets = [
        Sheet(f"layer {n + 1}", "softmax", kind_of(weights), weights[row])
        for n, weights in enumerate(model.attention_maps(inputs.args[0]))
    ]
    return [Group("fields", names, names, False, sheets)]


def _mmoe(model: MMoE, inputs: Inputs, row: int) -> Groups:
    weights = model.weights(inputs.args[0])[row][None]
    tasks = numbered(inputs.row(inputs.others, row), weights.shape[1])
    experts = [f"expert {n + 1}" for n in range(weights.shape[2])]
    sheet = Sheet(f"gate {model.config.gate}", "gate", kind_of(weights[None]), weights)
    return [Group("experts of each task", tasks, experts, True, [sheet])]


_TABLES: dict[type, Any] = {DIN: _din, AutoInt: _autoint, MMoE: _mmoe}


def _documents(model: HAN, inputs: Inputs) -> list[Reading]:
    check_taken(model, *inputs.args, **inputs.kwargs)
    read = model.read(*inputs.args, **inputs.kwargs)
    tokens = inputs.args[0] if inputs.args else inputs.kwargs["tokens"]
    valid = existing(tokens, inputs.kwargs.get("valid"))
    found = []
    for row, shown in enumerate(valid):
        ids = [str(n) for n in tokens[row][shown].tolist()]
        names = inputs.row(inputs.words, row) or ids
        words = iter(names if len(names) >= len(ids) else ids)
        sizes = shown.sum(1)
        kept = sizes[sizes > 0].tolist()
        document = {
            "words": [list(islice(words, n)) for n in kept],
            "weights": [z.tolist() for z in read.words[row][shown].split(kept)],
            "sentences": read.sentences[row][sizes > 0].tolist(),
        }
        found.append(Reading(_label(inputs, row), [], document))
    if not found:
        raise UnsupportedError("page does not support an empty batch: there is nothing to show")
    return found
