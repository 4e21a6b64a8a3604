"""Mixed chunk attention without the gate: MC-TFM++ (Hua et al. 2022, arXiv 2202.10447, the ablation of FLASH).

    y = concat_h( softmax(q k^T / sqrt(K)) v inside chunks of C tokens  +  a_i q_i / sqrt(K) sum_j k_j v_j^T ) W_out

q and k are turned by rope. The second sum runs over all tokens, or, where causal, over those of the chunks before; a_i
as in `flash` (`lin_norm`). Cost: T C K + T K V per head. The paper does not say how its heads weigh or scale the parts:
here both use the same q and k. `local_fn="relu2"` takes relu(q k / sqrt(K))^2 over the number of visible keys inside
chunks, as `flash` does. `parts`: "local" and "global" are the paper's ablations with one part only.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core import Capabilities, Mask, Mixer, No, Observation, OptionError
from regard.functional.choice import Impl, check_impl
from regard.functional.gated.mixed_chunk import (
    LinNorm,
    Share,
    between_chunks_weights,
    extend,
    initial_state,
    mixed_chunks,
    same_chunk,
    shares,
)
from regard.functional.gated.squared_relu import squared_relu_attention, squared_relu_weights
from regard.functional.positions.rotary import rotate
from regard.functional.shared.cache import place
from regard.functional.softmax import softmax_attention, softmax_weights
from regard.nn.heads import Heads


class LocalForm(NamedTuple):
    attention: Callable[..., Tensor]
    weights: Callable[..., Tensor]
    options: dict[str, Any]


LOCAL_FORMS = {
    "softmax": LocalForm(softmax_attention, softmax_weights, {"scale": 1.0}),
    "relu2": LocalForm(squared_relu_attention, squared_relu_weights, {}),
}


class MixedChunk(Mixer):
    __doc__ = __doc__
    name = "mixed_chunk"
    family = "linear"
    paper = "Hua et al. 2022, arXiv 2202.10447"
    capabilities = Capabilities(
        causal=True,
        pairwise=No(
            "keys are summed before any query meets them, so single pairs cannot be taken out"
        ),
        global_tokens=True,
        cross=No("its chunks pair the tokens of one sequence"),
        streaming="exact",
        attention_map=True,
        positions=frozenset({"absolute"}),
        approximates="softmax",
        time="T C H K + T H K V",
        memory="T D",
        state="H K V + C H K",
    )
    variants = {
        "chunk": {"chunk_size": 4},
        "relu2": {"chunk_size": 5, "local_fn": "relu2", "lin_norm": "chunk"},
        "local": {"chunk_size": 4, "parts": "local"},
        "global": {"chunk_size": 4, "parts": "global"},
    }

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        max_len: int | None = None,
        chunk_size: int = 256,
        local_fn: Literal["softmax", "relu2"] = "softmax",
        lin_norm: LinNorm = "count",
        parts: Literal["both", "local", "global"] = "both",
        impl: Impl = "auto",
    ):
        super().__init__(dim, max_len=max_len)
        self.impl = check_impl(self.name, impl)
        self.shares = shares(self.name, lin_norm, chunk_size, max_len)
        self.num_heads = num_heads
        self.heads = Heads(dim, num_heads)
        if self.heads.head_dim % 2:
            raise OptionError(
                f"mixed_chunk: dim / num_heads ({self.heads.head_dim}) must be even: rotary positions turn channels in pairs"
            )
        self.chunk_size, self.local_fn, self.parts = chunk_size, local_fn, parts
        if lin_norm == "n":
            self.declare(any_length=No("its sums are divided by max_len (lin_norm='n')"))
        if parts == "local":
            self.declare(global_tokens=No("with parts='local' only tokens of one chunk meet"))
        if parts == "global":
            self.delay = chunk_size

    def mix(self, x, context, mask):
        q, k, v = self.heads.split(x)
        options = {"chunk_size": self.chunk_size, "mask": mask, "impl": self.impl}
        attend, share = self._sums(mask.causal)
        return self.heads.merge(mixed_chunks(attend, _turned, q, k, v, share=share, **options))

    def _sums(self, causal: bool) -> tuple[Callable[..., Tensor] | None, Share | None]:
        """How tokens of one chunk meet, and the factor of the sum over chunks; None for a part that is left out."""
        attend = None if self.parts == "global" else self._attend
        return attend, None if self.parts == "local" else self.shares[causal]

    def _parts(
        self, x: Float[Tensor, "B T D"], position: Int[Tensor, "b T"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.heads.split(x)
        return *_turned(q, k, position), v

    def _attend(self, q, k, v, mask: Mask, query: Tensor, key: Tensor) -> Tensor:
        form = LOCAL_FORMS[self.local_fn]
        impl = (
            "auto" if self.local_fn == "softmax" else self.impl
        )  # pieces of fixed size, in which scores would rule the memory
        return form.attention(q, k, v, mask=mask, impl=impl, **form.options)

    def _initial_state(self, batch_size, max_len, context, valid):
        K = self.heads.head_dim
        like = self.heads.value.weight
        return initial_state(like, batch_size, self.num_heads, self.chunk_size, K, K, K)

    def _extend(self, x, state, valid, donate):
        q, k, v = self._parts(x, place(state.length, valid, x.shape[1]))
        attend, share = self._sums(causal=True)
        pairs = (q, q), (k, k)
        mixed, state = extend(attend, state, *pairs, v, valid=valid, share=share, donate=donate)
        return self.heads.merge(mixed), state

    def _observe(self, x, context, mask):
        T = x.shape[1]
        q, k, v = self._parts(x, torch.arange(T, device=x.device)[None])
        weights = []
        if self.parts != "global":
            chunk = Mask(mask.causal, mask.valid, same_chunk(T, self.chunk_size, x.device))
            form = LOCAL_FORMS[self.local_fn]
            weights.append(form.weights(q, k, mask=chunk, **form.options))
        if self.parts != "local":
            share = self.shares[mask.causal]
            weights.append(
                between_chunks_weights(q, k, chunk_size=self.chunk_size, mask=mask, share=share)
            )
        total = sum(weights[1:], weights[0])
        return Observation(q, k, v, total, total @ v)


def _turned(q: Tensor, k: Tensor, position: Int[Tensor, "b T"] | int) -> tuple[Tensor, Tensor]:
    """q / sqrt(K) and k, turned by their positions, or by those from a first one on."""
    if isinstance(position, int):
        position = torch.arange(position, position + q.shape[2], device=q.device)[None]
    q, k = rotate(torch.cat([q, k], dim=1), position).chunk(2, dim=1)
    return q / math.sqrt(q.shape[-1]), k
