"""Memory-compressed attention (Liu et al. 2018, arXiv 1801.10198): a strided convolution shortens keys and values.

    k'_c = sum_t k_(s c + t) W_t + b   (t = 0 .. s - 1),   v' likewise,   y = softmax(q k'^T / sqrt(K)) v'

Kernel = stride = s = `factor`. Cost: T^2 (K + V) / s per head, still quadratic. State: a slot for every s tokens, and
the unfinished ones. W mixes the channels of one head (`grouped`) or of all; keys and values have convolutions of their
own unless `share_conv`. The paper says neither, nor what follows.

Slots are counted from the first token. Causal: query i sees slot c once its last token has come, s c + s - 1 <= i, and
the tokens of an unfinished slot wait (`delay`). The first queries would see nothing: `first_slot="token0"` puts the raw
k_0, v_0 before the slots, which then appear one token later, s c + s <= i, as in the authors' library; "null" puts a
learned pair there (zero at first), "none" nothing: the first s - 1 outputs are zero. Bidirectional: no first slot; the
last slot is completed with zeros. `num_kv_heads` (arXiv 2305.13245): heads that share a key compress it by their own W. No rotary
positions: a slot mixes keys of several places, and channels that a rotation pairs.

Args:
    factor: tokens that one compressed key summarises
    share_conv: True: keys and values share one convolution
    grouped: True: the convolution mixes the channels of one head alone
    first_slot: what the first queries see before any slot is complete: the first token, a learned pair or nothing
"""

from functools import partial
from typing import Literal

from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import Keys, No, Options, Values
from regard.functional.compressed import First, State, compressed_attention, extend, filled
from regard.functional.rows import Impl, apart, in_chunks, side_by_side
from regard.functional.softmax import attend
from regard.mixers._base import ALL, HeadsMixer
from regard.nn.heads import read
from regard.nn.starts import unset


class Compressed(HeadsMixer):
    __doc__ = __doc__
    name = "compressed"
    family = "low-rank"
    paper = "Liu et al. 2018, arXiv 1801.10198"
    operations = ("softmax",)
    capabilities = ALL.but(
        pairwise=No(
            "keys are compressed before any query meets them, so single pairs cannot be taken out"
        ),
        attention_map=No(
            "a slot mixes the channels of its tokens, so no single weight belongs to a token"
        ),
        approximates="softmax",
    )
    variants = {
        "null": {"first_slot": "null", "factor": 4, "num_kv_heads": 1},
        "none": {"first_slot": "none", "factor": 2},
        "shared": {"share_conv": True, "grouped": False},
        "one": {"factor": 1},
    }

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        factor: int = 3,
        share_conv: bool = False,
        grouped: bool = True,
        first_slot: Literal["token0", "null", "none"] = "token0",
        num_kv_heads: int | None = None,
        impl: Impl = "auto",
    ):
        super().__init__(dim, num_heads, num_kv_heads, impl)
        self.factor = factor
        self.first_slot = first_slot
        self.delay = factor if first_slot == "token0" else factor - 1
        groups = num_heads if grouped else 1
        conv = partial(nn.Conv1d, dim, dim, factor, stride=factor, groups=groups)
        self.key_conv = conv()
        self.value_conv = None if share_conv else conv()
        self.null = None
        if first_slot == "null":
            self.null = unset(2, num_heads, 1, self.heads.head_dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.null is not None:
            nn.init.zeros_(self.null)

    def mix(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        return self.heads.merge(compressed_attention(q, k, v, mask=mask, **self._options(k, v)))

    def _options(self, k: Keys, v: Values) -> Options:
        first = None
        if self.first_slot == "token0":
            first = First(k[:, :, :1], v[:, :, :1], late=True)
        elif self.null is not None:
            null_k, null_v = self.null[:, None].expand(-1, k.shape[0], -1, -1, -1)
            first = First(null_k, null_v, late=False)
        return {
            "factor": self.factor,
            "compress_k": partial(self._convolve, self.key_conv),
            "compress_v": partial(self._convolve, self.value_conv or self.key_conv),
            "first": first,
            "impl": self.impl,
        }

    def _convolve(self, conv: nn.Conv1d, z: Keys) -> Float[Tensor, "B H C K"]:
        """A product over the tokens of a slot and their channels: a convolution would need the channels first."""
        G, H = read(self.name, conv).groups, self.num_heads
        assert conv.bias is not None
        z = z if G == H else side_by_side(z)[:, None]  # one head of all channels
        weight = rearrange(conv.weight, "(g o) i s -> g (s i) o", g=G)
        slots = z.unflatten(2, (-1, self.factor)).flatten(3) @ weight
        slots = slots + conv.bias.unflatten(0, (G, 1, -1))
        return slots if G == H else apart(slots[:, 0], z.shape[3] // H).contiguous()

    def _start(self, length, max_len):
        lead = int(self.first_slot != "none")
        sizes = lead + (max_len or 0) // self.factor, self.factor - 1
        store, rest = (self.heads.zeros(len(length), size) for size in sizes)
        return State(store, store.clone(), rest, rest.clone(), length)

    def _step(self, x, state, valid, donate):
        q, k, v = self.heads.split(x, None, state.length)
        return extend(q, k, v, state, valid=valid, donate=donate, **self._options(k, v))

    def _keep(self, context, valid):
        kept = self.heads.keys(context), self.heads.values(context)
        k, v = (filled(z, self.factor) for z in kept)
        some = in_chunks(valid[:, None, :, None], self.factor).any(3).mT
        of_k = self.key_conv
        return self._convolve(of_k, k), self._convolve(self.value_conv or of_k, v), some

    def _read(self, x, kept, at):
        k, v, some = kept
        return attend(self.heads.queries(x), k, v, some, impl=self.impl)
