"""Transformer-XL: a causal stack that reads in segments, with a memory of those before (Dai et al. 2019, arXiv 1901.02860).

    segment t, layer n:   h~ = [SG(m_t^n) ; h_t^(n-1)],   h_t^n = block(q of h_t^(n-1), k and v of h~),   positions relative
    m_(t+1)^n = the last mem_len rows of h~              no gradient enters a memory; N layers see N mem_len tokens back

The memories are the state: `extend(tokens, state)` gives logits and the state after them, and a caller with a stream of
his own carries it from batch to batch. `forward` starts without memory and walks its tokens segment by segment, so that
a task with long items trains with carried memory; one update follows a whole item, where the paper updates after every
segment. With mem_len >= all the past the values are those of one long segment. With norm_first a memory still holds the
layer's input, which is normalised anew whenever it is read.

A paper's evaluation has a longer memory in shorter segments: no parameter depends on either, so that a model of that
configuration takes the state dict as it is.

Cost of a segment of L tokens: L (L + mem_len) D for each layer. Unlike the paper's code: dropout neither on the
sinusoids nor before the softmax, plain instead of adaptive softmax, initial weights as in the library's other stacks.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, cast

import torch

from regard.core import Mixer, Rate, TensorMap, UnsupportedError, compaction, permute
from regard.functional.rows import recomputed
from regard.mixers.transformer_xl import TransformerXL as Recurrence
from regard.models.config import SizesConfig
from regard.models.language_model import LanguageModel, LanguageModelConfig
from regard.models.tokens import Numbers, TokenLogits, Tokens, Valid


class TransformerXLConfig(SizesConfig):
    """A stack over segments. checkpoint: each segment is computed again for its backward, so that training holds the activations of one.

    Args:
        segment_len: tokens that are read at a time
        mem_len: tokens of earlier calls that each layer keeps
        clamp_len: tokens: larger distances count as this one; None: no limit
        same_length: True: every query sees mem_len keys at most, itself included
        untie: True: each layer has biases u and v of its own; the paper's layers share one of each
    """

    name = "transformer_xl"
    kinds = ("language_model",)

    segment_len: int = 64
    mem_len: int = 64
    clamp_len: int | None = None
    same_length: bool = False
    untie: bool = False
    feed_forward: str = "relu"
    norm_first: bool = False
    attention_dropout: Rate = 0.0

    def __post_init__(self):
        self.stack  # noqa: B018  its own checks

    @property
    def stack(self) -> LanguageModelConfig:
        shared = {f.name: getattr(self, f.name) for f in fields(SizesConfig)}
        return LanguageModelConfig(
            **shared | {"checkpoint": False},  # of whole segments, here
            mixer=Recurrence,
            mixer_options={
                "mem_len": self.mem_len,
                "clamp_len": self.clamp_len,
                "same_length": self.same_length,
                "dropout": self.attention_dropout,
            },
            feed_forward_bias=True,
            position="none",
            norm_first=self.norm_first,
        )


class TransformerXL(LanguageModel):
    """model(tokens [B T], valid=[B T] | None) -> logits [B T vocab_size] of the next token, from an empty memory.

    Segments are cut among the valid tokens of each row, so that padding of any amount and side changes nothing.
    """

    name = "transformer_xl"

    def __init__(self, config: TransformerXLConfig):
        super().__init__(config.stack)
        self.config = config
        self._tie()
        self.register_load_state_dict_post_hook(TransformerXL._tie)  # after assign=True

    def _tie(self, _: object = None) -> None:
        first, *others = (cast(Recurrence, mixer).position for mixer in self.encoder.mixers)
        for position in others if not self.config.untie else ():
            position.u = first.u
            position.v = first.v

    def _apply(self, fn: TensorMap, recurse: bool = True):
        """u and v stay one for all layers where tensors are made anew, as by `to_empty`."""
        super()._apply(fn, recurse)
        self._tie()
        return self

    def forward(
        self, tokens: Tokens, *, valid: Valid = None, documents: Numbers = None
    ) -> TokenLogits:
        """Raises UnsupportedError for documents."""
        self.encoder.check_tokens(tokens, valid)
        state = self.initial_state(tokens.shape[0])
        return self.extend(tokens, state, valid=valid, documents=documents)[0]

    def _extend(self, tokens, state, *, valid=None, documents=None, donate=False):
        """Read in segments of segment_len, with mem_len tokens of memory."""
        if documents is not None:
            raise UnsupportedError(
                f"{self.name} does not support documents: its segments are of whole rows. Give each document as a row."
            )
        self.encoder.check_tokens(tokens, valid)
        order = None if valid is None else compaction(valid)
        if order is not None:
            tokens = permute(tokens, order.source)
            valid = order.valid
        parts, size = [], self.config.segment_len
        # A recomputing backward reads each state again.
        again = self.config.checkpoint and torch.is_grad_enabled()
        for start in range(0, tokens.shape[1], size):
            columns = slice(start, start + size)
            hidden, state = recomputed(
                self.encoder.extend,
                tokens[:, columns],
                state,
                when=self.config.checkpoint,
                random=True,
                valid=None if valid is None else valid[:, columns],
                donate=False if again else donate,
            )
            parts.append(hidden)
        whole = torch.cat(parts, 1)
        return whole if order is None else permute(whole, order.target), state

    @property
    def streamed(self) -> Sequence[Mixer]:
        """None: its segments are its own choice."""
        return ()


def transformer_xl_wikitext_base(vocab_size: int = 267_735) -> TransformerXLConfig:
    """Returns the base for WikiText-103: 151 million parameters. Evaluated with mem_len=640, segment_len=64, clamp_len=400, same_length=True."""
    return _published(vocab_size, 150, dim=410, num_heads=10, num_layers=16, hidden_dim=2100)


def transformer_xl_enwik8_base(vocab_size: int = 204) -> TransformerXLConfig:
    """Returns the base for enwik8: 41 million parameters. Evaluated with mem_len=2100, segment_len=80, clamp_len=820, same_length=True."""
    return _published(vocab_size, 512, dim=512, num_heads=8, num_layers=12, hidden_dim=2048)


def transformer_xl_enwik8_large(vocab_size: int = 204) -> TransformerXLConfig:
    """Returns 24 layers for enwik8: 277 million parameters; evaluated with a memory of 3,800."""
    config = _published(vocab_size, 768, dim=1024, num_heads=8, num_layers=24, hidden_dim=3072)
    return replace(config, dropout=0.15, attention_dropout=0.15)


def transformer_xl_small(vocab_size: int) -> TransformerXLConfig:
    """Returns a configuration for small machines: pre-norm, which trains without a warm-up."""
    config = _published(vocab_size, 64, num_layers=4, hidden_dim=256)
    return replace(config, mem_len=128, norm_first=True)


def _published(vocab_size: int, length: int, **sizes: Any) -> TransformerXLConfig:
    """Segments and memories of one length."""
    return TransformerXLConfig(
        vocab_size=vocab_size, segment_len=length, mem_len=length, dropout=0.1, **sizes
    )
