"""What every kind of position is."""

from typing import ClassVar, Literal

from torch import nn

Kind = Literal["absolute", "rotation", "bias", "scores"]


class Position(nn.Module):
    """`kind` says who uses it: the embedding ("absolute"), or a mixer, through the method named in relative.py."""

    name: ClassVar[str]
    kind: ClassVar[Kind]
