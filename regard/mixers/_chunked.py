"""Base class of mixed chunk attention: exact inside chunks of tokens, summed between them (Hua et al. 2022, arXiv 2202.10447)."""

from typing import Literal

from torch import Tensor

from regard.core import Mixed, No, OptionError, Positions
from regard.functional.cache import place
from regard.functional.mixed_chunk import LinNorm, Share, Sums, mixed_chunks
from regard.functional.mixed_chunk_stream import extend
from regard.functional.rows import first_places, widened
from regard.mixers._base import ALL, SplitMixer

Parts = Literal["both", "local", "global"]


class ChunkedMixer(SplitMixer):
    """y_i = sum_{j in the chunk of i} w_ij v_j  +  a_i q'_i sum_j k'_j v_j^T; a mechanism writes `_sums`."""

    paper = "Hua et al. 2022, arXiv 2202.10447"
    capabilities = ALL.but(
        pairwise=No(
            "keys are summed before any query meets them, so single pairs cannot be taken out"
        ),
        cross=No("its chunks pair the tokens of one sequence"),
    )

    shares: list[Share]
    """The factor a, by `causal`: one over the tokens of the sum, over the chunk (causal only), or over max_len."""

    def _set_chunks(self, chunk_size: int, lin_norm: LinNorm, parts: Parts) -> None:
        most = self.max_len
        constants = {"count": (None, None), "chunk": (None, chunk_size), "n": (most, most)}
        self.shares = [Share(constant) for constant in constants[lin_norm]]
        self.chunk_size = chunk_size
        self.parts = parts
        if lin_norm == "n":
            if most is None:
                raise OptionError(f"{self.name}: lin_norm='n' needs max_len: pass max_len=")
            self.declare(any_length=No("its sums are divided by max_len (lin_norm='n')"))
        if parts == "local":
            self.declare(global_tokens=No("with parts='local' only tokens of one chunk meet"))
        if parts == "global":
            self.delay = chunk_size

    def _sums(self, x: Tensor, causal: bool, position: Positions) -> tuple[Sums, Mixed]:
        """What the two sums of tokens at these positions are made of, and v."""
        raise NotImplementedError

    def _split(self, x, context, at=None):
        sums, v = self._sums(x, True, first_places(x) if at is None else at)
        q, k = sums.near or sums.far or (None, None)
        return q, k, v

    def mix(self, x, context, mask):
        return self._merge(x, self._mixed(x, context, mask))

    def _mixed(self, x, context, mask, of=None):
        sums, v = self._sums(x, mask.causal, first_places(x))
        v = v if of is None else of(v)
        return mixed_chunks(sums, v, chunk_size=self.chunk_size, mask=mask)

    def _step(self, x, state, valid, donate):
        sums, v = self._sums(x, True, place(state.length, valid, x.shape[1]))
        near, far = (None if pair is None else widened(*pair) for pair in (sums.near, sums.far))
        sums, (values,) = sums._replace(near=near, far=far), widened(v)
        y, state = extend(sums, values, state, valid=valid, donate=donate)
        return y.type_as(v), state
