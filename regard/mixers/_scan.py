"""Base class of mixers whose keys and values pass into a state that decays: convolution, heads, norm, gate, and streaming."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import (
    No,
    OwnKeys,
    OwnValues,
    Queries,
    Streamed,
    TensorMap,
    Tokens,
    as_state,
    check_divisible,
)
from regard.functional.cache import Lengths, advance, last_rows
from regard.functional.delta import decayed_attention, delta_attention
from regard.functional.features import present
from regard.functional.rows import apart, grouped, least, ranged, widened
from regard.mixers._base import ALL, SplitMixer
from regard.nn.norm import RMSNorm
from regard.nn.recurrent import ShortConv
from regard.nn.starts import Glorot, glorot, projection

ORDER = No("its state forgets in the order of the tokens")
Terms = tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]


@as_state
class State(Streamed):
    sums = ("S",)
    S: Float[Tensor, "B H K V"]
    inputs: Float[Tensor, "B taps C"]  # the convolution's last
    length: Lengths


class ScanMixer(SplitMixer):
    """y = W_out (norm(o) gate(W_g x)),   o = S^T q,   q, k, v = activation(conv(W x)).

    A mechanism writes `_terms`: what it makes of q, k and v, how much a token erases (None: nothing), and the log of the decay. Heads of
    queries and keys may be fewer than those of values, which share them.
    """

    family = "linear"
    capabilities = ALL.but(
        bidirectional=ORDER,
        pairwise=No("a state of all keys is read, so single pairs cannot be taken out"),
        cross=ORDER,
        time="T H K V",
        memory="T H V",
        state="H K V",
    )
    activation: TensorMap = staticmethod(F.silu)
    gate_of: TensorMap = staticmethod(F.silu)
    skip: nn.Parameter | None  # [H]: how much of its own value each token adds to its output

    def __init__(
        self,
        dim: int,
        num_heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        conv_size: int | None = None,
        *,
        num_key_heads: int | None = None,
        conv_bias: bool = False,
        gate: bool = True,
        gate_rank: int | None = None,
    ):
        super().__init__(dim)
        self.skip = None
        groups = num_key_heads or num_heads
        if key_dim is None or value_dim is None:
            check_divisible(dim=dim, num_heads=num_heads)
        check_divisible(num_heads=num_heads, num_key_heads=groups)
        self.num_heads = num_heads
        self.key_dim = key_dim or dim // num_heads
        self.value_dim = value_dim or dim // num_heads
        self.widths = [groups * self.key_dim, groups * self.key_dim, num_heads * self.value_dim]
        self.query, self.key, self.value = (Glorot(dim, n) for n in self.widths)
        self.out = Glorot(self.widths[2], dim)
        glorot(self)
        self.conv = conv_size and ShortConv(sum(self.widths), conv_size, bias=conv_bias)
        self.norm = RMSNorm(self.value_dim)
        bias = None if gate_rank is None else 0.0
        self.gate = projection(dim, self.widths[2], gate_rank, bias=bias) if gate else None

    def _terms(
        self, x: Tokens, q: Queries, k: OwnKeys, v: OwnValues, after: Lengths | None
    ) -> Terms:
        """q, k, v, b [B H T] (None: nothing is erased), log a [B H T] or [B H T K]; `after`: tokens before the first (None: there are none)."""
        raise NotImplementedError

    def _parts(self, x, state=None, valid=None) -> tuple[Terms, Float[Tensor, "B T C"]]:
        """`_terms`, where no token writes, erases or decays that does not exist; and the inputs of the convolution."""
        inputs = torch.cat([self.query(x), self.key(x), self.value(x)], -1)
        before, after = (
            (None, None) if state is None else (state.inputs.type_as(inputs), state.length)
        )
        wide, before = ranged(inputs, before)
        z = self.conv(wide, before) if self.conv else self.activation(wide)
        *qk, v = z.split(self.widths, -1)
        v = apart(v, self.value_dim)
        q, k = (grouped(apart(z, self.key_dim), v.shape[1]) for z in qk)
        q, k, v, b, g = self._terms(x, q, k, v, after)
        if valid is not None:
            k = present(k, valid)
            b, g = (None if z is None else present(z, valid) for z in (b, g))
        return (q, k, v, b, g), inputs

    def _scanned(self, q, k, v, b, g, state=None) -> tuple[Tensor, Tensor]:
        """What queries read, and the state after them; of float16 in float32, until a norm has made it small."""
        (state,) = ranged(state)
        if b is None:
            y, S = decayed_attention(q, k, v, g, state=state)
        else:
            y, S = delta_attention(q, k, v, b, g, state=state)
        return y if self.skip is None else y + self.skip[:, None, None] * v, S

    def mix(self, x, context, mask):
        return self._merge(x, self._scanned(*self._parts(x)[0])[0])

    def _split(self, x, context, at=None):
        (q, k, v, *_), _ = self._parts(x)
        return q.type_as(x), k.type_as(x), v.type_as(x)

    def _mixed(self, x, context, mask, of=None):
        (q, k, v, *factors), _ = self._parts(x)
        return self._scanned(q, k, v if of is None else of(v), *factors)[0].type_as(x)

    def _merge(self, x, mixed):
        y = self.norm(mixed.transpose(1, 2)).flatten(2)
        return self.out(y if self.gate is None else y * self.gate_of(self.gate(x)))

    def _start(self, length, max_len):
        like = self._like
        taps = self.conv.size - 1 if self.conv else 0
        (S,) = widened(like.new_zeros(len(length), self.num_heads, self.key_dim, self.value_dim))
        return State(S, like.new_zeros(len(length), taps, sum(self.widths)), length)

    def _step(self, x, state, valid, donate):
        (q, k, v, b, g), inputs = self._parts(x, state, valid)
        q, k, values, before = widened(q, k, v, state.S)
        mixed, S = self._scanned(q, k, values, b, g, before)
        length = advance(state.length, valid, x.shape[1])
        kept = state.inputs
        if self.conv:
            kept = last_rows(kept, inputs, length - state.length)
        return mixed.type_as(v), State(S, kept, length)


def units_of(x: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Rows z / sqrt(|z|^2 + 1e-6), as the released code has it, or of less where x's type does not hold the gradient; the first is divided by sqrt(K) as well."""
    eps = least(x, 1e-3) ** 2
    q, *rest = (z * (z.square().sum(-1, keepdim=True) + eps).rsqrt() for z in widened(*tensors))
    return q / q.shape[-1] ** 0.5, *rest
