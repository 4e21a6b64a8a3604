"""Pixel classification: an image read pixel by pixel, row by row, by the ordinary Classifier (Tay et al. 2020, arXiv 2011.04006).

A preset: a token is a grey level, and a position is a learned row and a learned column. The paper's model is given
neither rows nor columns, only places in the sequence: position="learned" for that.
"""

from dataclasses import replace

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from regard.core import OptionError, ShapeError
from regard.core.shapes import check_positive
from regard.models.classifier import ClassifierConfig


def pixel_classifier(
    height: int,
    width: int,
    num_classes: int,
    *,
    levels: int = 256,
    dim: int = 128,
    num_heads: int = 4,
    num_layers: int = 2,
    mixer: str = "softmax",
    position: str = "axial",
) -> ClassifierConfig:
    """The configuration for images of this size; what is not named here is changed by `dataclasses.replace`.

    height, width: pixels. levels: different values of a pixel.
    """
    check_positive(height=height, width=width)
    config = ClassifierConfig(
        vocab_size=levels,
        num_classes=num_classes,
        dim=dim,
        num_heads=num_heads,
        num_layers=num_layers,
        max_len=height * width,
        mixer=mixer,
        position=position,
    )
    if position == "axial":
        return replace(config, position_options={"shape": (height, width)})
    if position == "coordinates":
        return replace(config, position_options={"grid": (height, width)})
    return config


def pixel_tokens(
    images: UInt8[Tensor, "B Y X"] | Float[Tensor, "B Y X"], *, levels: int = 256
) -> Int[Tensor, "B T"]:
    """Grey levels as token ids, row by row. Images are uint8, or floating point between 0 and 1.

    Raises ShapeError unless images are [B height width], OptionError for another type.
    """
    check_positive(levels=levels)
    if images.dim() != 3:
        raise ShapeError(
            f"pixel_tokens: images must be [B height width], got {list(images.shape)}. "
            "Make colours grey, or give each channel a row of its own."
        )
    if images.dtype == torch.uint8:
        return (images.long() * levels // 256).flatten(1)
    if not images.is_floating_point():
        raise OptionError(
            f"pixel_tokens: images must be uint8, or floating point between 0 and 1, got {images.dtype}"
        )
    return (images * levels).long().clamp(0, levels - 1).flatten(1)
