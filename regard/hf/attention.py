"""Mechanisms as attention implementations of Transformers: `attn_implementation="regard_linear"`.

Each is registered together with its mask function: one alone would let Transformers leave the causal mask out.
"""

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import CheckedOptions, Mask, Mixer, Seed, ShapeError, UnsupportedError
from regard.functional.rows import grouped, side_by_side
from regard.functional.softmax import behind_sink, softmax_attention
from regard.hf.masks import request, with_documents
from regard.hf.sources import keys_of_others
from regard.mixers import MIXERS
from regard.mixers.build import build, check_own, option_names, resolve
from regard.models.config import AnyMixer, Options
from regard.nn.centroids import Centroids
from regard.nn.given_heads import packed, with_given_heads


@dataclass(frozen=True, eq=False)
class AttentionConfig(metaclass=CheckedOptions):
    """A mechanism and its options. cross, windowed: the config of cross attention, and of layers with a sliding window, where it is another.

    max_len: what mechanisms that need a bound are built for. seed: of random features and blocks; each layer adds its
    number.
    """

    mixer: AnyMixer
    options: Options = field(default_factory=dict)
    cross: "AttentionConfig | None" = None
    windowed: "AttentionConfig | None" = None
    max_len: int = 4096
    seed: Seed = 0

    def __post_init__(self):
        check_own("AttentionConfig", self.options, "head_dim", "num_kv_heads")
        _mixer(self, 2, 2, 8)
        if self.cross is not None and _reads_earlier_queries(self.cross):
            raise UnsupportedError(REFUSED_CROSS.format(self.cross.cls.name))

    @property
    def cls(self) -> type[Mixer]:
        return resolve(self.mixer)


REFUSED_CROSS = (
    "{} does not support cross attention by attn_implementation: what a query finds depends on those before it, which a cache "
    "does not keep. Give AttentionConfig another mechanism as cross=."
)
REFUSED = {
    "head_mask": "heads are not switched off one by one",
    "cache": "its keys and values are not paged",
}
"""Arguments of Transformers' attention functions that change the mathematics -> why they are refused."""

SCORED = ("position_bias", "s_aux", "softcap")
"""Arguments of Transformers' attention functions that change scores: numbers added to them, logits of sinks [H], a cap."""


@dataclass(frozen=True, eq=False)
class AttentionFunction:
    """The function of Transformers' AttentionInterface: q [B H T K], k and v [B G S K] -> y [B T H K], weights."""

    config: AttentionConfig

    def __call__(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        is_causal: bool | None = None,
        output_attentions: bool | None = None,
        **others: Any,
    ) -> tuple[Tensor, Tensor | None]:
        config = self.config
        given = {name: z for name, z in others.items() if z is not None}
        if "sliding_window" in given:
            config = config.windowed or config
        for name, reason in REFUSED.items():
            if name in given:
                raise UnsupportedError(f"{config.cls.name} does not support {name}: {reason}")
        B, H, T, K = query.shape
        mask, S = request(module, attention_mask, is_causal, query, key.shape[2])
        mask = with_documents(config.cls.name, mask, B, T, S, given)
        k, v = key[:, :, :S], value[:, :, :S]
        one, as_context = _chosen(config, module, mask, T, S)
        if v.shape[3] != K:
            raise ShapeError(
                f"{one.cls.name}: values of width {v.shape[3]} beside keys of width {K}"
            )
        q = query if scaling is None else query * (scaling * K**0.5)
        if scored := {name: given[name] for name in SCORED if name in given}:
            if output_attentions:
                scored["output_attentions"] = True
            return _scored(one, q, k, v, mask, scored, dropout), None
        layer = getattr(module, "layer_idx", None) or 0
        mixer = _mixer(one, H, k.shape[1], K, dropout, layer, q.device, q.dtype)
        mixer.train(module.training)
        y, weights = _mixed(mixer, q, k, v, mask, as_context, bool(output_attentions))
        return y.unflatten(2, (H, K)), weights


def _mixed(
    mixer: Mixer, q: Tensor, k: Tensor, v: Tensor, mask: Mask, as_context: bool, need_weights: bool
) -> tuple[Float[Tensor, "B T H*K"], Tensor | None]:
    """Outputs and weights. Keys and values reach up to the last query; as_context: as in `_chosen`."""
    heads: Any = mixer.heads
    k, v = (grouped(z, heads.num_kv_heads) for z in (k, v))
    q, k, v = map(side_by_side, (q, k, v))
    T, S = q.shape[1], k.shape[1]
    if q.shape[0] != k.shape[0]:
        raise ShapeError(f"{mixer.name}: a batch of {q.shape[0]} queries and of {k.shape[0]} keys")
    # stored keys may be a context: the causal order then counts from the last valid key, the last query
    can = mixer.capabilities.cross
    may_be = can and (mask.valid is None or T == 1)
    cut = mask.pairwise is not None and not can  # a model's window: earlier keys may be gone
    if not as_context and (T == S or (mask.causal and T < S and not may_be and not cut)):
        if T < S and getattr(mixer, "sort_net", mixer) is None:
            raise UnsupportedError(
                f"{mixer.name} does not support a cache of keys and values: it sorts by earlier queries, too, which are "
                "not stored. Use use_cache=False."
            )
        # queries that come after stored keys take their places in the whole sequence
        x = packed(mixer, F.pad(q, (0, 0, S - T, 0)), k, v)
        if mask.pairwise is not None:
            mask = replace(mask, pairwise=F.pad(mask.pairwise, (0, 0, S - T, 0), value=True))
        context = None
    elif T == S:
        x = context = packed(mixer, q, k, v)  # one tensor holds both
    else:
        if not can:
            raise UnsupportedError(
                f"{mixer.name} does not support cross attention nor, beside a model's own windows, a cache: queries and keys "
                "must be of the same tokens. Give AttentionConfig a cross=, or use use_cache=False."
            )
        x = packed(mixer, q)
        context = packed(mixer, None, k, v)
    weights = None
    if need_weights:
        weights = mixer.attention_map(x, context=context, mask=mask)[:, :, -T:]
    return mixer(x, context=context, mask=mask)[:, -T:], weights


def _scored(
    config: AttentionConfig,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask,
    given: Options,
    rate: float,
) -> Float[Tensor, "B T H K"]:
    """Softmax attention with what SCORED names, and dropout at this rate."""
    told = " beside ".join(given)
    if config.cls.name != "softmax" or config.options:
        raise UnsupportedError(
            f"{config.cls.name} does not support {told}: it has no scores to change. softmax has."
        )
    if "output_attentions" in given:
        raise UnsupportedError(
            f"attn_implementation='regard_softmax' does not support {told}. Use attn_implementation='eager'."
        )
    how: dict[str, Any] = {"scale": None, "soft_cap": given.get("softcap")}
    if "position_bias" in given:
        how["bias"] = lambda rows, cols: given["position_bias"][:, :, rows, cols]
    T = q.shape[2]
    if mask.documents is not None:
        pairs = replace(mask, causal=False, valid=None).dense(T, T)
        mask = replace(mask, pairwise=pairs, documents=None)
    if "s_aux" in given:
        q, k, v, mask, how = behind_sink(q, k, v, given["s_aux"], mask, how)
    y = softmax_attention(q, k, v, mask=mask, dropout=rate, **how)
    return y[:, :, -T:].transpose(1, 2)


def _chosen(
    config: AttentionConfig, module: nn.Module, mask: Mask, T: int, S: int
) -> tuple[AttentionConfig, bool]:
    """The config for this call, and whether keys and values go in as a context.

    They do if they are of other tokens, which equal lengths do not say, or if it makes no difference.
    """
    if mask.causal:
        return config, False
    others = keys_of_others(module)
    if others is False and T == S:
        return config, False
    if config.cross is None and mask.documents is None and _same_as_context(config):
        if _reads_earlier_queries(config):
            raise UnsupportedError(REFUSED_CROSS.format(config.cls.name))
        return config, True
    if others is None:
        raise UnsupportedError(
            f"{config.cls.name} cannot be the attention of {type(module).__name__}: whether its {T} queries and {S} keys are "
            "of the same tokens is not seen from its arguments, and this mechanism differs in it. Use 'regard_softmax' or "
            "another mechanism with `cross`, without a config for cross attention."
        )
    if others and config.cross is not None:
        return config.cross, True
    return config, others or T != S


@cache
def _same_as_context(config: AttentionConfig) -> bool:
    """True if a sequence mixes with itself as with a context that is the same sequence, unless in causal order."""
    return config.cls in MIXERS.values() and bool(_mixer(config, 2, 2, 8).capabilities.cross)


@cache
def _reads_earlier_queries(config: AttentionConfig) -> bool:
    """True if what a query finds in a context depends on the queries before it, or on their number."""
    mixer = _mixer(config, 2, 2, 8)
    if not mixer.capabilities.cross:
        return False
    k, v = torch.randn(2, 1, config.max_len, 16, generator=torch.Generator().manual_seed(0))
    many, context = packed(mixer, k[:, :1024]), packed(mixer, None, k, v)
    beside, alone = (mixer(x, context=context)[:, -1] for x in (many, many[:, -1:]))
    return not torch.allclose(beside, alone, atol=1e-5)


@cache
@torch.inference_mode(False)  # its buffers serve training, too
def _mixer(
    config: AttentionConfig,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    dropout: float = 0.0,
    layer: int = 0,
    device: torch.device | None = None,
    dtype: torch.dtype | None = None,
) -> Mixer:
    """A mixer without parameters for a layer: a pure function of the arguments."""
    cls, options = config.cls, dict(config.options)
    if dropout:
        if "dropout" not in option_names(cls):
            raise UnsupportedError(
                f"{cls.name} does not support dropout of weights: set the model's attention dropout to 0"
            )
        options["dropout"] = dropout
    if "num_kv_heads" in option_names(cls):
        options["num_kv_heads"] = num_kv_heads
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed + layer)
        mixer = build(
            cls, dim=num_heads * head_dim, num_heads=num_heads, max_len=config.max_len, **options
        )
    given = with_given_heads(mixer)
    learned = [name for name, _ in given.named_parameters()]
    if any(isinstance(part, Centroids) for part in given.modules()):
        learned.append("centroids")
    if learned:
        raise UnsupportedError(
            f"{cls.name} does not support attn_implementation: it learns {', '.join(learned)}, and an attention "
            "function stores nothing. regard.nn.MultiheadAttention does."
        )
    return given.to(device=device, dtype=dtype)
