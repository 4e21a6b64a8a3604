"""PatchClassifier: an image cut into patches, a stack of blocks over them, their mean or maximum, a linear head.

    x_n = W patch_n + b (+ position)          patches row by row, as in arXiv 2010.11929 and 2105.01601

Unlike `pixel_classifier`, whose tokens are single pixels, a token here is p x p pixels with all their channels; pixels
are numbers from -1 to 1 and not entries of a table. With a `stem`, patches are cut from what 3 x 3 convolutions, each
with a batch norm and a relu (arXiv 2106.14881), make of the image: the hybrid of arXiv 2010.11929. The mixers and
positions are given the number of patches as their max_len. Cost: the stack's, over (height / p) (width / p) tokens, and
the stem's, 9 C C' for each pixel of its maps.
"""

import math
from dataclasses import field
from typing import Any

from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import (
    Mask,
    Mixer,
    OptionError,
    ShapeError,
    UnsupportedError,
    check_place,
    is_dense,
    require_all,
    shown,
)
from regard.functional.rows import first_places
from regard.models.blocks import make_blocks
from regard.models.classifier import Summary
from regard.models.config import Logits, Model, StackConfig
from regard.models.encoder import added_position
from regard.models.tokens import Tokens, Valid, check_tokens
from regard.pools import build_pool


class PatchClassifierConfig(StackConfig):
    """A classifier of images. vocab_size: the levels of a pixel. max_len is the number of pixels, channels counted.

    patch_size counts pixels of the image, so that it is a multiple of the product of the stem's strides.

    Args:
        image_size: height and width of an image, in pixels
        patch_size: height and width of a patch, in pixels
        channels: channels of an image
        stem: channels and stride, in pixels, of each convolution before the patches
    """

    name = "patch_classifier"
    kinds = ("classify",)
    image_size: tuple[int, int]
    patch_size: int
    num_classes: int
    channels: int = 1
    vocab_size: int = 256
    max_len: int = field(init=False)
    position: str = "learned"
    summary: Summary = "mean"
    stem: tuple[tuple[int, int], ...] = ()

    def __post_init__(self):
        height, width = self.image_size
        if height % self.patch_size or width % self.patch_size:
            raise OptionError(
                f"image_size ({height}, {width}) must be a multiple of patch_size ({self.patch_size})"
            )
        if self.vocab_size == 1:
            raise OptionError("vocab_size (1) must be at least 2: a pixel has two levels or more")
        if self.patch_size % self.stem_stride:
            raise OptionError(
                f"patch_size ({self.patch_size}) must be a multiple of the product of the stem's strides ({self.stem_stride})"
            )
        object.__setattr__(self, "max_len", self.channels * height * width)
        super().__post_init__()

    @property
    def stem_stride(self) -> int:
        return math.prod(stride for _, stride in self.stem)

    @property
    def num_patches(self) -> int:
        return self.max_len // (self.channels * self.patch_size**2)

    @property
    def facts(self) -> dict[str, Any]:
        return super().facts | {"max_len": self.num_patches}


class PatchClassifier(Model):
    """model(tokens [B T]) -> logits [B num_classes]; T are the levels of all pixels, one channel after the other, row by row.

    `read` takes images as numbers. Raises UnsupportedError for `valid`: an image has no padding.
    """

    name = "patch_classifier"

    def __init__(self, config: PatchClassifierConfig):
        super().__init__(config)
        self.who = f"patch_classifier({config.mixer_name})"
        self.stem, channels = nn.Sequential(), config.channels
        for wider, stride in config.stem:
            convolution = nn.Conv2d(channels, wider, 3, stride, padding=1, bias=False)
            self.stem += nn.Sequential(convolution, nn.BatchNorm2d(wider), nn.ReLU())
            channels = wider
        self.side = config.patch_size // config.stem_stride
        self.project = nn.Linear(channels * self.side**2, config.dim)
        self.position = added_position(config)
        self.embedding_norm = config.norm_if(config.embedding_norm, config.dim)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = make_blocks(config, causal=False)
        width = self.blocks.width
        self.norm = config.norm_if(config.norm_first, width)
        self.pool = build_pool(config.summary, width)
        self.head = nn.Linear(width, config.num_classes)

    @property
    def mixers(self) -> list[Mixer]:
        return self.blocks.mixers

    def forward(self, tokens: Tokens, *, valid: Valid = None) -> Logits:
        """Raises ShapeError for levels, or numbers of them, that do not fit, UnsupportedError for `valid`."""
        if valid is not None:
            raise UnsupportedError(
                f"{self.who} does not support valid: its images are all of one size, so no pixel is padding"
            )
        levels = self.config.vocab_size
        check_tokens(self.who, tokens, None, self.project.weight, levels)
        require_all((tokens >= 0) & (tokens < levels), f"{self.who}: levels are 0 to {levels - 1}")
        if tokens.shape[1] != self.config.max_len:
            raise ShapeError(
                f"{self.who}: {tokens.shape[1]} pixels, and an image has {self.config.max_len}: "
                f"{self.config.channels} channels of {list(self.config.image_size)}"
            )
        height, width = self.config.image_size
        images = rearrange(tokens, "b (c y x) -> b c y x", y=height, x=width)
        return self.read(images.to(self.project.weight.dtype) * (2 / (levels - 1)) - 1)

    def read(self, images: Float[Tensor, "B C Y X"]) -> Logits:
        """Logits of images given as numbers; those made from levels run from -1 to 1.

        Raises ShapeError for images of another size.
        """
        wanted = (self.config.channels, *self.config.image_size)
        if not is_dense(images) or images.ndim != 4 or images.shape[1:] != wanted:
            raise ShapeError(
                f"{self.who}: images must be [B, {', '.join(map(str, wanted))}], got {shown(images)}"
            )
        check_place(self.who, "images", images, self.project.weight)
        p = self.side
        patches = rearrange(self.stem(images), "b c (y p) (x q) -> b (y x) (p q c)", p=p, q=p)
        place = first_places(patches)
        x = self.dropout(self.embedding_norm(self.position(self.project(patches), place)))
        marked = self.config.global_at(place, x.shape[0])
        x = self.norm(self.blocks(x, mask=Mask(global_tokens=marked)))
        return self.head(self.pool(x)[:, 0])
