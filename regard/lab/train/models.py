"""Models of tables and of single layers, which have a place for a mixer and are otherwise as plain as can be.

    table         a token for each field, E[id] or x v, plus one learned vector for each field -> blocks -> mean
                  (FT-Transformer's tokens, arXiv 2106.11959)

It is a stack of ordinary blocks, so that all mechanisms get one width and one number of parameters.
"""

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import Mask
from regard.mixers.build import build
from regard.models.blocks import Block, make_blocks
from regard.models.config import StackConfig
from regard.models.tokens import Tokens, Valid
from regard.nn import FEED_FORWARDS, NORMS
from regard.nn.fields import FieldEmbedding, Fields
from regard.nn.starts import NormalRows, normal_rows


class FeaturesConfig(StackConfig):
    """fields of a table. Their own vectors tell them apart: no positions are added."""

    name: ClassVar[str] = "features"
    kinds = ("table",)
    vocab_size: int = 1  # of no account: each field has its own
    fields: Fields = ()
    num_tasks: int = 1

    def build(self) -> "Features":
        return Features(self)


class Features(nn.Module):
    """model(batch of fields) -> outputs [B num_tasks]; a missing field is its own vector alone."""

    def __init__(self, config: FeaturesConfig):
        super().__init__()
        self.embedding = FieldEmbedding(config.fields, config.dim, std=1.0)
        self.own = nn.Parameter(torch.randn(len(config.fields), config.dim))
        self.blocks = make_blocks(config, causal=False)
        self.norm = NORMS[config.norm](config.dim)
        self.head = nn.Linear(config.dim, config.num_tasks)

    def forward(self, batch: Any) -> Float[Tensor, "B K"]:
        e = self.embedding(batch)[0]
        return self.head(self.norm(self.blocks(e + self.own, mask=Mask())).mean(1))


class TokenReaderConfig(StackConfig):
    """One block and a readout of few classes at every token: what a screen of single layers trains."""

    name: ClassVar[str] = "token_reader"
    kinds = ("masked_language_model", "language_model")
    num_classes: int = 0
    causal: bool = False
    num_layers: int = 1
    position: str = "learned"

    def build(self) -> "TokenReader":
        return TokenReader(self)


class TokenReader(nn.Module):
    """model(tokens [B T], valid=None) -> logits [B T num_classes]

        x = E[token] + P[place],   x <- x + mixer(LN x),   x <- x + FFN(LN x),   logits = W LN x + b

    E starts as N(0, 1) and P as N(0, 1/4). The feed-forward layer is left out where the mixer includes one: one layer stays one layer,
    where the models of `regard.models` would count two such layers as one.
    """

    def __init__(self, config: TokenReaderConfig):
        super().__init__()
        self.config = config
        dim = config.dim
        options = {"dim": dim, "num_heads": config.num_heads, "max_len": config.max_len}
        mixer = build(config.mixer, **options, **config.mixer_options)  # type: ignore[arg-type]
        mixer.require("causal" if config.causal else "bidirectional")
        self.embedding = nn.Embedding(config.vocab_size, dim)
        self.position = NormalRows(config.max_len, dim)
        normal_rows(self.position, std=0.5)
        hidden = config.hidden_dim or 4 * dim
        ffn = None if mixer.capabilities.includes_ffn else FEED_FORWARDS["gelu"](dim, hidden)
        self.block = Block(dim, mixer, ffn)
        self.norm = nn.LayerNorm(dim)
        self.readout = nn.Linear(dim, config.num_classes)

    def forward(self, tokens: Tokens, *, valid: Valid = None) -> Float[Tensor, "B T num_classes"]:
        place = torch.arange(tokens.shape[1], device=tokens.device)
        marked = None if self.config.causal else self.config.global_at(place[None], len(tokens))
        mask = Mask(causal=self.config.causal, valid=valid, global_tokens=marked)
        x = self.embedding(tokens) + self.position(place)
        return self.readout(self.norm(self.block(x, mask=mask)))
