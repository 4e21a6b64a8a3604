"""Memory-compressed attention (Liu et al. 2018, arXiv 1801.10198): a strided convolution shortens keys and values.

    k'_c = sum_t k_(s c + t) W_t + b   (t = 0 .. s - 1),   v' likewise,   y = softmax(q k'^T / sqrt(K)) v'

Kernel = stride = s = `factor`. Cost: T^2 (K + V) / s per head, still quadratic. State: a slot for every s tokens, and
the unfinished ones. W mixes the channels of one head (`grouped`) or of all; keys and values have convolutions of their
own unless `share_conv`. The paper says neither, nor what follows.

Slots are counted from the first token. Causal: query i sees slot c once its last token has come, s c + s - 1 <= i, and
the tokens of an unfinished slot wait (`delay`). The first queries would see nothing: `first_slot="token0"` puts the raw
k_0, v_0 before the slots, which then appear one token later, s c + s <= i, as in the authors' library; "null" puts a
learned pair there (zero at first), "none" nothing: the first s - 1 outputs are zero. Bidirectional: no first slot; the
last slot is completed with zeros.
"""

from typing import Literal, NamedTuple, get_args

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core import Capabilities, Mask, Mixer, No, Observation, OptionError
from regard.core.shapes import check_positive
from regard.functional.low_rank.compressed import First, compressed_attention, slot_attention, write
from regard.functional.shared.cache import advance, append, is_ours, place, same_in_all
from regard.functional.softmax.dense import softmax_attention
from regard.nn.heads import Heads

FirstSlot = Literal["token0", "null", "none"]


class State(NamedTuple):
    k: Float[
        Tensor, "B H C K"
    ]  # the first slot, if any, from the first token on, then length // factor slots
    v: Float[Tensor, "B H C V"]
    rest_k: Float[Tensor, "B H s K"]  # factor - 1; length % factor of them wait for their slot
    rest_v: Float[Tensor, "B H s V"]
    length: Int[Tensor, "B"]


class ContextState(NamedTuple):
    k: Float[Tensor, "B H C K"]
    v: Float[Tensor, "B H C V"]
    valid: Bool[Tensor, "B C"]
    length: Int[Tensor, "B"]


class Compressed(Mixer):
    name = "compressed"
    family = "low-rank"
    paper = "Liu et al. 2018, arXiv 1801.10198"
    capabilities = Capabilities(
        causal=True,
        pairwise=No(
            "keys are compressed before any query meets them, so single pairs cannot be taken out"
        ),
        global_tokens=True,
        cross=True,
        streaming="exact",
        attention_map=No(
            "a slot mixes the channels of its tokens, so no single weight belongs to a token"
        ),
        positions=frozenset({"absolute"}),
        approximates="softmax",
        time="T^2 H K",
        memory="T D",
        state="T D",
    )
    variants = {
        "null": {"first_slot": "null", "factor": 4},
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
        first_slot: FirstSlot = "token0",
    ):
        super().__init__(dim)
        check_positive(factor=factor)
        if first_slot not in get_args(FirstSlot):
            raise OptionError(
                f"compressed: first_slot must be one of {get_args(FirstSlot)}, got {first_slot!r}"
            )
        self.num_heads, self.factor, self.first_slot = num_heads, factor, first_slot
        self._lead, self._late = int(first_slot != "none"), first_slot == "token0"
        self.delay = factor if self._late else factor - 1
        self.heads = Heads(dim, num_heads)
        groups = num_heads if grouped else 1
        self.key_conv = nn.Conv1d(dim, dim, factor, stride=factor, groups=groups)
        self.value_conv = (
            None if share_conv else nn.Conv1d(dim, dim, factor, stride=factor, groups=groups)
        )
        self.null = (
            nn.Parameter(torch.zeros(2, num_heads, 1, self.heads.head_dim))
            if first_slot == "null"
            else None
        )

    def mix(self, x, context, mask):
        return self.heads.merge(self._attend(*self.heads.split(x, context), mask))

    def _attend(self, q, k, v, mask: Mask) -> Tensor:
        return compressed_attention(
            q,
            k,
            v,
            factor=self.factor,
            compress_k=self._compress_k,
            compress_v=self._compress_v,
            first=self._first(k[:, :, :1], v[:, :, :1]),
            mask=mask,
        )

    def _compress_k(self, k: Float[Tensor, "B H S K"]) -> Float[Tensor, "B H C K"]:
        return self._convolve(self.key_conv, k)

    def _compress_v(self, v: Float[Tensor, "B H S V"]) -> Float[Tensor, "B H C V"]:
        return self._convolve(self.key_conv if self.value_conv is None else self.value_conv, v)

    def _convolve(self, conv: nn.Conv1d, z: Float[Tensor, "B H S K"]) -> Float[Tensor, "B H C K"]:
        """As a product over the tokens of a slot and their channels: a convolution wants the channels first."""
        s, H = self.factor, self.num_heads
        assert conv.bias is not None
        if conv.groups == 1:
            tokens = z.transpose(1, 2).reshape(z.shape[0], -1, s * self.dim)
            weight = rearrange(conv.weight, "o i s -> o (s i)")
            slots = nn.functional.linear(tokens, weight, conv.bias)
            return slots.unflatten(2, (H, -1)).transpose(1, 2).contiguous()
        weight = rearrange(conv.weight, "(h o) i s -> h (s i) o", h=H)
        slots = z.unflatten(2, (-1, s)).flatten(3) @ weight
        return slots + conv.bias.unflatten(0, (H, 1, -1))

    def _first(self, k: Float[Tensor, "B H f K"], v: Float[Tensor, "B H f V"]) -> First | None:
        if self._late:
            return First(k, v, late=True)
        if self.null is None:
            return None
        null = self.null[:, None].expand(-1, k.shape[0], -1, -1, -1)
        return First(null[0], null[1], late=False)

    def _initial_state(self, batch_size, max_len, context, valid):
        weight = self.heads.value.weight
        length = torch.zeros(batch_size, dtype=torch.long, device=weight.device)
        if context is not None:
            missing = (0, -context.shape[1] % self.factor)
            valid = (
                context.new_ones(context.shape[:2], dtype=torch.bool) if valid is None else valid
            )
            valid = nn.functional.pad(valid, missing).unflatten(1, (-1, self.factor)).any(-1)
            k, v = (
                nn.functional.pad(z, (0, 0, *missing))
                for z in (self.heads.keys(context), self.heads.values(context))
            )
            return ContextState(self._compress_k(k), self._compress_v(v), valid, length)

        def store(n: int) -> Tensor:
            return weight.new_zeros(batch_size, self.num_heads, n, self.heads.head_dim)

        room, rest = self._lead + (max_len or 0) // self.factor, self.factor - 1
        return State(store(room), store(room), store(rest), store(rest), length)

    def _extend(self, x, state, valid, donate):
        N, s = x.shape[1], self.factor
        length = advance(state.length, valid, N)
        if isinstance(state, ContextState):
            mixed = softmax_attention(
                self.heads.queries(x), state.k, state.v, mask=Mask(valid=state.valid)
            )
            return self.heads.merge(mixed), state._replace(length=length)
        q, new_k, new_v = self.heads.split(x)
        at = same_in_all(state.length) if N == 1 and valid is None else None
        if at is not None:
            mixed, state = self._one_more(q, new_k, new_v, state, at, donate)
            return self.heads.merge(mixed), state._replace(length=length)
        first = self._first(new_k[:, :, :1], new_v[:, :, :1])
        new_k = self._one_after_another(state.rest_k, new_k, state.length)
        new_v = self._one_after_another(state.rest_v, new_v, state.length)
        filled, now = state.length // s, length // s
        slot = torch.arange(new_k.shape[2] // s, device=x.device)
        exists = slot < (now - filled)[:, None]
        column = self._lead + filled[:, None] + slot
        room = self._lead + int(now.max())
        k, v = state.k, state.v
        if first is not None:
            begins = (state.length == 0)[:, None]
            front = torch.zeros_like(begins, dtype=torch.long)
            k = write(k, first.k, front, begins, room, donate)
            v = write(v, first.v, front, begins, room, donate)
            donate = True  # what was written just now is nobody else's
        usable = len(slot) * s
        k = write(k, self._compress_k(new_k[:, :, :usable]), column, exists, room, donate)
        v = write(v, self._compress_v(new_v[:, :, :usable]), column, exists, room, donate)
        mixed = slot_attention(
            q,
            k[:, :, :room],
            v[:, :, :room],
            place(state.length, valid, N),
            factor=s,
            has_first=self._lead > 0,
            late=self._late,
        )
        used = (now - filled) * s
        rest_k, rest_v = (_from(z, used, s - 1) for z in (new_k, new_v))
        return self.heads.merge(mixed), State(k, v, rest_k, rest_v, length)

    def _one_more(
        self, q: Tensor, new_k: Tensor, new_v: Tensor, state: State, at: int, donate: bool
    ) -> tuple[Float[Tensor, "B H 1 V"], State]:
        """A token at place `at` of every row: few operations, no mask, and no copy of what is stored."""
        k, v, first = state.k, state.v, self._first(new_k, new_v)
        if first is not None and at == 0:
            k, v = append(k, first.k, 0, donate), append(v, first.v, 0, donate)
        column, waiting = self._lead + at // self.factor, at % self.factor
        rest_k, rest_v = (
            torch.cat([rest[:, :, :waiting], new, rest[:, :, waiting + 1 :]], dim=2)
            for rest, new in ((state.rest_k, new_k), (state.rest_v, new_v))
        )
        if (
            waiting == self.factor - 1
        ):  # there is one token more than waits, and the slot is complete
            k = append(k, self._compress_k(rest_k), column, donate)
            v = append(v, self._compress_v(rest_v), column, donate)
            rest_k, rest_v = rest_k[:, :, :waiting], rest_v[:, :, :waiting]
        elif not is_ours(donate, k, v):  # whoever keeps the state before may write behind its slots
            k, v = k[:, :, :column], v[:, :, :column]
        seen = self._lead + (at + 1 - int(self._late)) // self.factor
        y = softmax_attention(q, k[:, :, :seen], v[:, :, :seen]) if seen else torch.zeros_like(q)
        return y, state._replace(k=k, v=v, rest_k=rest_k, rest_v=rest_v)

    def _one_after_another(
        self,
        rest: Float[Tensor, "B H s K"],
        new: Float[Tensor, "B H N K"],
        length: Int[Tensor, "B"],
    ) -> Float[Tensor, "B H n K"]:
        """What waits, and behind it, in every row without a gap, what is new."""
        place = torch.arange(rest.shape[2] + new.shape[2], device=new.device)
        waiting = (length % self.factor)[:, None]
        index = torch.where(place < waiting, place, place + rest.shape[2] - waiting)
        return _rows(torch.cat([rest, new], dim=2), index)

    def _observe(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        return Observation(q, k, v, heads=self._attend(q, k, v, mask))


def _from(
    z: Float[Tensor, "B H n K"], start: Int[Tensor, "B"], count: int
) -> Float[Tensor, "B H c K"]:
    return _rows(z, start[:, None] + torch.arange(count, device=z.device))


def _rows(z: Float[Tensor, "B H n K"], index: Int[Tensor, "B c"]) -> Float[Tensor, "B H c K"]:
    index = index.clamp(max=z.shape[2] - 1)[:, None, :, None]
    return z.gather(2, index.expand(-1, z.shape[1], -1, z.shape[3]))
