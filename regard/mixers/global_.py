"""Global tokens (Ainslie et al. 2020, arXiv 2004.08483; Beltagy et al. 2020, arXiv 2004.05150).

    i sees j  if  i or j is in G,  or i = j                                                    (j <= i when causal)

Internal global tokens are the first `num_global` tokens of every row and those of `Mask.global_tokens`. External ones
are `num_external` learned tokens before the sequence, whose keys and values all queries see; they are dropped after the
layer, so they carry nothing between tokens. When causal, a global token sums up its past and serves later tokens.

Cost: T G (K + V) per head; T^2 where the mask gives global tokens, for any token may be one. State: the keys and values
of the first `num_global` tokens. The output projection has no bias.
"""

import torch
from torch import Tensor, nn

from regard.core import Capabilities, Mixer, No, Observation
from regard.core.shapes import check_positive
from regard.functional.sparse.attention import pattern_attention, pattern_weights
from regard.functional.sparse.cache import empty_state, extend_pattern
from regard.functional.sparse.patterns import First, Window
from regard.nn.heads import Heads


class Global(Mixer):
    name = "global"
    family = "banded"
    paper = "Ainslie et al. 2020, arXiv 2004.08483"
    capabilities = Capabilities(
        causal=True,
        pairwise=True,
        global_tokens=True,
        cross=No("global tokens are tokens of the sequence itself"),
        streaming="exact",
        attention_map=True,
        positions=frozenset({"absolute"}),
        time="T M H K",
        memory="T D",
        state="M H K",
    )
    variants = {
        "several": {"num_global": 3},
        "external": {"num_global": 2, "num_external": 3},
        "mask_only": {"num_global": 0},
    }
    limits = {"softmax": ({"num_global": 64}, {})}

    def __init__(self, dim: int, *, num_heads: int, num_global: int = 1, num_external: int = 0):
        super().__init__(dim)
        check_positive(
            num_heads=num_heads, num_global=num_global + 1, num_external=num_external + 1
        )
        self.num_heads = num_heads
        self.heads = Heads(dim, num_heads)
        self.external = (
            nn.Parameter(torch.randn(num_external, dim) * 0.02) if num_external else None
        )
        oneself = Window(0, 0)
        self.pattern = oneself | First(num_global) if num_global else oneself

    def mix(self, x, context, mask):
        q, k, v = self.heads.split(x)
        external = self._external(x.shape[0])
        return self.heads.merge(
            pattern_attention(q, k, v, pattern=self.pattern, mask=mask, external=external)
        )

    def _external(self, B: int) -> tuple[Tensor, Tensor] | None:
        if self.external is None:
            return None
        k, v = self.heads.keys(self.external[None]), self.heads.values(self.external[None])
        return k.expand(B, -1, -1, -1), v.expand(B, -1, -1, -1)

    def _initial_state(self, batch_size, max_len, context, valid):
        weight = self.heads.value.weight
        return empty_state(
            weight, batch_size, self.num_heads, self.heads.head_dim, self.pattern, max_len
        )

    def _extend(self, x, state, valid, donate):
        q, k, v = self.heads.split(x)
        external = self._external(x.shape[0])
        mixed, state = extend_pattern(
            q, k, v, state, pattern=self.pattern, valid=valid, donate=donate, external=external
        )
        return self.heads.merge(mixed), state

    def _observe(self, x, context, mask):
        q, k, v = self.heads.split(x)
        external_k, external_v = self._external(x.shape[0]) or (k[:, :, :0], v[:, :, :0])
        weights = pattern_weights(q, k, pattern=self.pattern, mask=mask, external=external_k)
        return Observation(q, k, v, weights, weights @ torch.cat([external_v, v], dim=2))
