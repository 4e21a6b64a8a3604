"""Base class of mixers over a pattern of positions: heads, prefix tokens, streaming and maps."""

import torch
from torch import Tensor, nn

from regard.core import Capabilities, Mask, Mixer, No, Observation
from regard.core.options import Count
from regard.functional.choice import Impl, check_impl
from regard.functional.pattern import pattern_attention, weights
from regard.functional.pattern_stream import extend, initial_state
from regard.functional.patterns import Pattern
from regard.nn.heads import Heads

CAUSAL = Mask(causal=True)


class PatternMixer(Mixer):
    """y = concat_h( softmax over the pairs of a pattern ) W_out; a mechanism sets `pattern`.

    num_external: learned tokens before the sequence, whose keys and values all queries see.
    """

    family = "banded"
    capabilities = Capabilities(
        causal=True,
        pairwise=True,
        global_tokens=True,
        cross=No("a pattern needs queries and keys on one axis"),
        streaming="exact",
        attention_map=True,
        positions=frozenset({"absolute"}),
        time="T W H K",
        memory="T D",
        state="W H K",
    )
    pattern: Pattern

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        impl: Impl,
        max_len: int | None = None,
        num_external: Count = 0,
    ):
        super().__init__(dim, max_len=max_len)
        self.impl = check_impl(self.name, impl, "pattern")
        self.num_heads = num_heads
        self.heads = Heads(dim, num_heads)
        self.external = nn.Parameter(torch.empty(num_external, dim)) if num_external else None
        if self.external is not None:
            self.beside_heads = "its learned tokens"
        PatternMixer.reset_parameters(self)  # a subclass may not have what it resets

    def reset_parameters(self) -> None:
        if self.external is not None:
            nn.init.normal_(self.external, std=0.02)

    def _request(self, T: int, mask: Mask) -> tuple[Pattern, Mask, int | None]:
        """The pattern and the mask that serve a request, and the most global tokens of a row, if that is known."""
        return self.pattern, mask, None

    def _prefix(self, B: int) -> tuple[Tensor, Tensor] | None:
        """Keys and values of the external tokens."""
        if self.external is None:
            return None
        k, v = self.heads.keys(self.external[None]), self.heads.values(self.external[None])
        return k.expand(B, -1, -1, -1), v.expand(B, -1, -1, -1)

    def mix(self, x, context, mask):
        return self.heads.merge(self._mixed(x, mask))

    def _mixed(self, x: Tensor, mask: Mask) -> Tensor:
        """Outputs of the heads [B H T V]."""
        pattern, mask, most = self._request(x.shape[1], mask)
        return pattern_attention(
            *self.heads.split(x),
            pattern=pattern,
            mask=mask,
            prefix=self._prefix(x.shape[0]),
            max_global=most,
            impl=self.impl,
        )

    def _initial_state(self, batch_size, max_len, context, valid):
        pattern, heads = self._request(0, CAUSAL)[0], self.heads
        like = heads.value.weight
        return initial_state(like, batch_size, self.num_heads, heads.head_dim, pattern, max_len)

    def _extend(self, x, state, valid, donate):
        how = {"pattern": self._request(0, CAUSAL)[0], "valid": valid, "impl": self.impl}
        prefix = self._prefix(x.shape[0])
        y, state = extend(*self.heads.split(x), state, prefix=prefix, donate=donate, **how)
        return self.heads.merge(y), state

    def _observe(self, x, context, mask):
        q, k, v = self.heads.split(x)
        pattern, mask, _ = self._request(x.shape[1], mask)
        first_k, first_v = self._prefix(x.shape[0]) or (None, v[:, :, :0])
        a = weights(q, k, pattern=pattern, mask=mask, prefix=first_k)
        return Observation(q, k, v, a, a @ torch.cat([first_v, v], dim=2))
