"""The base of every kind of position, and how one is made from its options."""

import inspect
from typing import ClassVar, Literal

from regard.core import CheckedModule, OptionError, Options

Kind = Literal["absolute", "rotation", "bias", "scores"]


class Position(CheckedModule):
    """kind: "absolute" is added to the embedding; the others are used by a mixer, through the method named in relative.py.

    Args:
        dim: channels of a token, D
        max_len: largest number of tokens in a row; None: no limit
        num_heads: heads, H
    """

    name: ClassVar[str]
    kind: ClassVar[Kind]


def make(cls: type[Position], facts: Options, options: Options) -> Position:
    """`facts` of the stack (dim, num_heads, max_len) go to those that take them; `options` are the kind's own.

    Raises UnknownNameError for an option that the kind lacks, OptionError where one is missing.
    """
    known = inspect.signature(cls).parameters
    if own := sorted({"dim", "num_heads"} & {*options}):
        raise OptionError(f"{cls.name}: {own[0]} cannot be among its options: it is the model's")
    taken = {name: fact for name, fact in facts.items() if name in known and fact is not None}
    return cls(**{**taken, **options})
