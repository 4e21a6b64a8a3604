"""Base class of mixers over a pattern of positions: heads, prefix tokens, streaming and maps."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import Mask, No, Observation, OptionError
from regard.core.options import Count
from regard.functional.pattern import pattern_attention, weights
from regard.functional.pattern_stream import extend, initial_state
from regard.functional.patterns import Pattern
from regard.functional.rows import Impl, check_impl
from regard.mixers._capabilities import ALL
from regard.nn.heads import Heads, HeadsMixer
from regard.positions.inside import inside

CAUSAL = Mask(causal=True)


class PatternMixer(HeadsMixer):
    """y = concat_h( softmax over the pairs of a pattern ) W_out; a mechanism sets `pattern`.

    num_external: learned tokens before the sequence, whose keys and values all queries see. They have no place, which a
    rotation would need.
    """

    family = "banded"
    capabilities = replace(
        ALL,
        cross=No("a pattern needs queries and keys on one axis"),
        positions=frozenset({"absolute", "rotary"}),
        time="T W H K",
        state="W H K",
    )
    pattern: Pattern
    max_global: int | None = None
    """The most global tokens of a row, if that is known."""

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        impl: Impl,
        max_len: int | None = None,
        num_external: Count = 0,
        num_kv_heads: int | None = None,
        position: str | None = None,
        position_options: Mapping[str, Any] | None = None,
        alike: bool = True,
    ):
        super().__init__(dim, max_len=max_len)
        self.impl = check_impl(self.name, impl, "pattern")
        self.num_heads = num_heads
        if num_external and position is not None:
            raise OptionError(
                f"{self.name}: position={position!r} turns keys by their places, and the num_external={num_external} "
                "learned tokens have none. Leave one out."
            )
        self.position = inside(self, num_heads, position, position_options)
        self.heads = Heads(
            dim,
            num_heads,
            num_kv_heads=num_kv_heads,
            repeat=True,
            alike=alike,
            position=self.position,
        )
        self.external = nn.Parameter(torch.empty(num_external, dim)) if num_external else None
        if self.external is not None:
            self.beside_heads = "its learned tokens"
        PatternMixer.reset_parameters(self)  # a subclass may not have what it resets

    def reset_parameters(self) -> None:
        if self.external is not None:
            nn.init.normal_(self.external, std=0.02)

    def _request(self, T: int, mask: Mask) -> tuple[Pattern, Mask, int | None]:
        """The pattern and the mask that serve a request, and the most global tokens of a row, if that is known."""
        return self.pattern, mask, self.max_global

    def _prefix(self, B: int) -> tuple[Tensor, Tensor] | None:
        """Keys and values of the external tokens."""
        if self.external is None:
            return None
        k, v = self.heads.keys(self.external[None]), self.heads.values(self.external[None])
        return k.expand(B, -1, -1, -1), v.expand(B, -1, -1, -1)

    def _mixed(self, x, context, mask):
        pattern, own, most = self._request(x.shape[1], mask)
        prefix = None if self.external is None else self._prefix(x.shape[0])
        how: dict[str, Any] = {
            "pattern": pattern,
            "mask": own,
            "max_global": most,
            "impl": self.impl,
        }
        y = pattern_attention(*self.heads.split(x), prefix=prefix, **how)
        return y if mask.global_tokens is None else self._global_rows(y, x, mask)

    def _global_rows(
        self, y: Float[Tensor, "B H T V"], x: Float[Tensor, "B T D"], mask: Mask
    ) -> Float[Tensor, "B H T V"]:
        """y, with other rows of global tokens where these have projections of their own."""
        return y

    def _initial_state(self, batch_size, max_len, context, valid):
        store, pattern = self.heads.zeros(batch_size, 0), self._request(0, CAUSAL)[0]
        H, K = store.shape[1], store.shape[3]
        return initial_state(store, batch_size, H, K, pattern, max_len)

    def _extend(self, x, state, valid, donate):
        how = {"pattern": self._request(0, CAUSAL)[0], "valid": valid, "impl": self.impl}
        prefix = self._prefix(x.shape[0])
        q, k, v = self.heads.split(x, None, state.length)
        y, state = extend(q, k, v, state, prefix=prefix, donate=donate, **how)
        return self.heads.merge(y), state

    def _observe(self, x, context, mask):
        q, k, v = self.heads.split(x)
        pattern, mask, _ = self._request(x.shape[1], mask)
        first = self._prefix(x.shape[0])
        how = {"pattern": pattern, "mask": mask, "prefix": None if first is None else first[0]}
        return Observation(q, k, v, weights(q, k, **how))
