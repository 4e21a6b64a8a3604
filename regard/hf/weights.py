"""Tensors of a checkpoint by name, and the parts that are made of them."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import Count, Mixer, Rate, StoredDataError, UnsupportedError, check_option, shown
from regard.functional.positions.rotary import Pairing
from regard.hf.fields import Fields
from regard.mixers.build import build
from regard.models.blocks import Block
from regard.nn.feed_forward import FeedForward

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Weights:
    """The tensors of a checkpoint by name, below a prefix; `left` are the names that nobody has read.

    All are read in the dtype of most of their numbers, as a mixer wants one. Raises StoredDataError for one that is no float16,
    bfloat16, float32 or float64.
    """

    def __init__(self, tensors: Mapping[str, Tensor]):
        self.tensors = dict(tensors)
        self.left = set(tensors)
        self.places = set(map(_place, tensors))
        numbers = Counter[torch.dtype]()
        for tensor in self.tensors.values():
            numbers[tensor.dtype] += tensor.numel() * (tensor.dtype in FLOATS)
        self.dtype = max(numbers, key=numbers.__getitem__, default=torch.float32)

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise StoredDataError(f"the checkpoint has no tensor {name!r}")
        self.left.discard(name)
        tensor = self.tensors[name]
        if tensor.dtype not in FLOATS:
            raise StoredDataError(f"the checkpoint's tensor {name!r} is of {tensor.dtype}")
        return tensor.detach().to(self.dtype, copy=True)

    def prefix(self, prefix: str) -> str:
        """The prefix, if a name begins with it; those of headless models have none."""
        return prefix if any(name.startswith(prefix) for name in self.tensors) else ""

    def repeats(self, name: str, tensor: Tensor) -> bool:
        """True if this name holds the same values, which are then read, or none, as on the meta device."""
        same = (
            name not in self or tensor.is_meta or torch.equal(self.tensors[name].to(tensor), tensor)
        )
        if same:
            self.left.discard(name)
        return same

    def linear(self, name: str) -> nn.Linear:
        """With a bias where the same layer of another block has one."""
        bias = f"{name}.bias"
        return linear(self[f"{name}.weight"], self[bias] if _place(bias) in self.places else None)

    def linears(self, pattern: str, parts: Iterable[str]) -> list[nn.Linear]:
        """One layer for each part, whose name comes in the place of {}."""
        return [self.linear(pattern.format(part)) for part in parts]

    def embedding(self, name: str) -> nn.Embedding:
        return nn.Embedding.from_pretrained(self[f"{name}.weight"], freeze=False)

    def norms(self, kind: Callable[..., nn.Module], eps: float) -> "Norms":
        """A function from a name to the norm of this kind."""
        check_option("load", "the epsilon of its norms", eps, Rate)

        def norm(name: str) -> nn.Module:
            weight = self[f"{name}.weight"]
            made = kind(len(weight), eps, dtype=weight.dtype)
            made.load_state_dict({part: self[f"{name}.{part}"] for part in made.state_dict()})
            return made

        return norm


Norms = Callable[[str], Any]


def _place(name: str) -> str:
    """The name without the numbers of blocks."""
    return re.sub(r"\d+", "", name)


def linear(weight: Float[Tensor, "F D"], bias: Float[Tensor, "F"] | None = None) -> nn.Linear:
    made = nn.Linear(weight.shape[1], len(weight), bias=bias is not None, dtype=weight.dtype)
    made.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}))
    return made


class LoadRequest(NamedTuple):
    weights: Weights
    config: Fields
    pairing: Pairing

    def require(self, **settings: object) -> None:
        """Raise UnsupportedError unless the settings have these values, which are also the defaults."""
        for name, value in settings.items():
            self.one_of(name, value)

    def tell(self, name: str, value: object, *, default: object) -> None:
        """Raise UnsupportedError unless the setting, or its default, has the value that the tensors have."""
        self.config.setdefault(name, default)
        self.one_of(name, value)

    def one_of(self, name: str, *values: object) -> None:
        """Raise UnsupportedError unless the setting has one of these values, the first by default."""
        found = self.config.get(name, values[0])
        if found not in values:
            raise UnsupportedError(
                f"load does not support {self.config['model_type']} with {name}={shown(found)}: it reads "
                f"{' or '.join(map(repr, values))}"
            )

    def agree(self, at: str, shapes: Mapping[str, str]) -> None:
        """Raise StoredDataError unless tensors fit: name below `at` -> for each dimension a sum of products of fields and numbers."""
        for name, fields in shapes.items():
            shape = list(self.weights.tensors[at + name].shape) if at + name in self.weights else []
            for size, total in zip(shape, fields.split(), strict=False):
                values: dict[str, Any] = {
                    field: int(field) if field.isdigit() else self.config.get(field)
                    for field in re.split(r"[*+]", total)
                }
                terms = (
                    math.prod(map(values.__getitem__, term.split("*"))) for term in total.split("+")
                )
                if None not in values.values() and size != sum(terms):
                    said = " and ".join(
                        f"{field}={shown(z)}" for field, z in values.items() if not field.isdigit()
                    )
                    raise StoredDataError(
                        f"load: the config of this {self.config['model_type']} has {said}, and its tensor "
                        f"{at + name!r} the shape {shape}"
                    )

    def depth(self, field: str) -> int:
        """Number of layers, each of which has tensors."""
        depth = self.config[field]
        check_option("load", field, depth, Count)
        if depth > len(self.weights.tensors):
            raise StoredDataError(
                f"load: the config of this {self.config['model_type']} has {field}={shown(depth)}, and the "
                f"checkpoint {len(self.weights.tensors)} tensors"
            )
        return depth

    def activation(self, field: str) -> str:
        self.one_of(field, *ACTIVATIONS)
        return self.config[field]

    def block(
        self,
        mixer: Mixer,
        norm: Norms,
        layer: str,
        names: Iterable[str],
        *,
        activation: str = "hidden_act",
        norm_first: bool = True,
    ) -> Block:
        """names, below the layer: the norms of mixer and feed-forward layer, and the latter's value, out and, where it has one, gate."""
        first, last, *parts = (f"{layer}.{name}" for name in names)
        made = ACTIVATIONS[self.activation(activation)]()
        feed_forward = FeedForward(1, 1, activation=made, gated=len(parts) > 2)
        for part, name in zip(("value", "out", "gate"), parts, strict=False):
            setattr(feed_forward, part, self.weights.linear(name))
        block = Block(1, mixer, feed_forward, norm_first=norm_first)
        block.mixer_norm = norm(first)
        block.feed_forward_norm = norm(last)
        return block

    def head(
        self, name: str, word: nn.Embedding, bias: Tensor | None = None, *, tied: bool
    ) -> nn.Linear:
        """The matrix to logits: a tied one is the table of tokens, unless the checkpoint holds another.

        So does Transformers' from_pretrained, which then corrects the config as is done here.
        """
        tied = tied and self.weights.repeats(f"{name}.weight", word.weight)
        self.config["tie_word_embeddings"] = tied
        head = linear(word.weight if tied else self.weights[f"{name}.weight"], bias)
        if tied:
            head.weight = word.weight
        return head


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "gelu_new": partial(nn.GELU, "tanh"),
    "gelu_pytorch_tanh": partial(nn.GELU, "tanh"),
    "relu": nn.ReLU,
    "silu": nn.SiLU,
}


def make_mixer(
    name: str, dim: int, num_heads: int, projections: Iterable[nn.Linear], **options: Any
) -> Mixer:
    """A mixer with these projections to queries, keys, values, and out of the heads, of any width."""
    query, key, value, out = projections
    mixer = build(name, dim=query.out_features, num_heads=num_heads, **options)
    heads: Any = mixer.heads
    heads.query = query
    heads.key = key
    heads.value = value
    heads.out = out
    mixer.dim = dim
    return mixer.to(query.weight.dtype)
