"""Base class of mixers over a pattern of positions: prefix tokens, streaming and maps."""

from torch import Tensor, nn

from regard.core import CAUSAL, Mask, Mixed, No, Observation, OptionError, Tokens
from regard.functional.pattern import pattern_attention, weights
from regard.functional.pattern_stream import State, extend
from regard.functional.patterns import Pattern
from regard.mixers._base import ALL, HeadsMixer
from regard.nn.starts import unset


class PatternMixer(HeadsMixer):
    """y = concat_h( softmax over the pairs of a pattern ) W_out; a mechanism sets `pattern`."""

    family = "banded"
    operations = ("pattern",)
    capabilities = ALL.but(
        cross=No("a pattern needs queries and keys on one axis"),
        positions=frozenset({"absolute", "rotary"}),
        time="T W H K",
        state="W H K",
    )
    pattern: Pattern
    max_global: int | None = None
    """The most global tokens of a row, if that is known."""

    @property
    def reach(self) -> int | None:
        """Tokens to each side that a query may see, where their distance alone decides; otherwise None."""
        return self.pattern.halo

    def _add_external(self, count: int) -> None:
        """Puts so many learned tokens before the sequence, whose keys and values all queries see.

        Raises OptionError beside a rotation: they have no place.
        """
        if count and self.position is not None:
            raise OptionError(
                f"{self.name}: position={self.position.name!r} turns keys by their places, and the num_external={count} "
                "learned tokens have none. Leave one out."
            )
        if count:
            self.external = unset(count, self.dim)
            self.beside_heads = "its learned tokens"
            PatternMixer.reset_parameters(self)  # a subclass may not have what it resets

    def reset_parameters(self) -> None:
        if hasattr(self, "external"):
            nn.init.normal_(self.external, std=0.02)

    def _request(self, T: int, mask: Mask) -> tuple[Pattern, Mask, int | None]:
        """The pattern and the mask that serve a request, and the most global tokens of a row, if that is known."""
        return self.pattern, mask, self.max_global

    def _prefix(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        """Keys and values of the external tokens."""
        if not hasattr(self, "external"):
            return None
        external = self.external[None]
        k, v = self.heads.keys(external), self.heads.values(external)
        return k.expand(x.shape[0], -1, -1, -1), v.expand(x.shape[0], -1, -1, -1)

    def mix(self, x, context, mask):
        q, k, v = self.heads.split(x)
        pattern, own, most = self._request(x.shape[1], mask)
        prefix = self._prefix(x)
        y = pattern_attention(
            q, k, v, pattern=pattern, mask=own, prefix=prefix, max_global=most, impl=self.impl
        )
        return self.heads.merge(y if mask.global_tokens is None else self._global_rows(y, x, mask))

    def _global_rows(self, y: Mixed, x: Tokens, mask: Mask) -> Mixed:
        """y, with other rows of global tokens where these have projections of their own."""
        return y

    def _start(self, length, max_len):
        pattern = self._request(0, CAUSAL)[0]
        rooms = (max_len or 0, 0) if pattern.reach is None else (pattern.reach, pattern.sinks)
        last, first = (self.heads.zeros(len(length), room) for room in rooms)
        return State(last, last.clone(), first, first.clone(), length)

    def _step(self, x, state, valid, donate):
        how = {"pattern": self._request(0, CAUSAL)[0], "valid": valid, "impl": self.impl}
        q, k, v = self.heads.split(x, None, state.length)
        return extend(q, k, v, state, prefix=self._prefix(x), donate=donate, **how)

    def _observe(self, x, context, mask):
        q, k, v = self.heads.split(x)
        pattern, mask, _ = self._request(x.shape[1], mask)
        keys, _ = self._prefix(x) or (None, None)
        return Observation(q, k, v, weights(q, k, pattern=pattern, mask=mask, prefix=keys))
