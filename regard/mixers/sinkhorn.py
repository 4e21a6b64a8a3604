"""Sparse Sinkhorn attention: each block of queries sees its own block and a learned sorted one (Tay et al. 2020, arXiv 2002.11296).

    R = P(summaries of blocks)                        the sorting network, see `nn.sort_net`
    S = Sinkhorn(exp((R + noise) / temperature))      doubly stochastic by `num_iterations` steps; Gumbel noise in training
    K'_g = sum_u S_gu K_u,  V'_g = sum_u S_gu V_u     y of block g = softmax(q [K'_g; K_g]^T / sqrt(K)) [V'_g; V_g]

A summary is the sum of a block's tokens. Causal: the sum of all tokens up to the block's first, which is all that its
queries may share, and S_g a softmax over earlier blocks: Sinkhorn's columns would divide by what later blocks want.

Cost: T C K per head for blocks of C = `block_size`, and T^2 K / C for the mixing. The default C = 2 sqrt(max_len) keeps the
second below a quarter of the first; a smaller C does not, and the instance says so. State: all keys and values, and what the
block that has begun meets.

Options: `join="separate"` adds two softmaxes (a public benchmark's form; the paper's formula can be read so) where the
default has one over both blocks. `sort_cut` = n: all queries see the first n sorted blocks and nothing else.
`mixture` adds full softmax attention. `sort_net="attention"` has no bound on the length.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.core import Capabilities, Mask, Mixer, No, Observation, OptionError
from regard.core.shapes import check_positive
from regard.functional.shared.cache import advance, is_ours, same_in_all
from regard.functional.sinkhorn.attention import (
    Join,
    balance,
    beside_sorted,
    block_pairs,
    block_weights,
    cut_keys,
    earlier_blocks,
    in_blocks,
    mixed,
    sinkhorn_attention,
)
from regard.functional.softmax.dense import masked_softmax, softmax_attention, softmax_weights
from regard.nn.heads import Heads
from regard.nn.sort_net import Kind, SortNet, block_scores, gumbel


class State(NamedTuple):
    k: Float[Tensor, "B H S K"]  # by position, in whole blocks
    v: Float[Tensor, "B H S V"]
    total: Float[Tensor, "B D"]  # of all tokens
    summary: Float[Tensor, "B D"]  # of the block that has begun
    met_k: Float[Tensor, "B H 2C K"]  # by that block: what is sorted for it, then its own
    met_v: Float[Tensor, "B H 2C V"]
    length: Int[Tensor, "B"]


class Sinkhorn(Mixer):
    name = "sinkhorn"
    family = "sorted"
    paper = "Tay et al. 2020, arXiv 2002.11296"
    capabilities = Capabilities(
        causal=True,
        pairwise=No("keys of several blocks are mixed before any query meets them"),
        global_tokens=No(
            "keys of several blocks are mixed, so that no single token can be shown to all"
        ),
        cross=No("a block of queries is joined with the keys of its own place"),
        streaming="exact",
        attention_map=True,
        any_length=No("the sorting network has one output for each block of max_len"),
        positions=frozenset({"absolute"}),
        approximates="softmax",
        time="T C H K",
        memory="T D",
        state="T H K",
    )
    variants = {
        "small": {"block_size": 4},
        "mlp_separate": {"block_size": 3, "sort_net": "mlp", "join": "separate"},
        "attention": {"block_size": 4, "sort_net": "attention"},
        "sort_cut": {"block_size": 4, "sort_cut": 2},
        "mixture": {"block_size": 3, "mixture": True},
    }
    limits = {"softmax": ({"block_size": 64}, {})}

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        max_len: int | None = None,
        block_size: int | None = None,
        sort_net: Kind = "linear",
        temperature: float = 0.75,
        num_iterations: int = 8,
        join: Join = "joint",
        sort_cut: int | None = None,
        mixture: bool = False,
    ):
        super().__init__(dim, max_len=max_len)
        check_positive(num_iterations=num_iterations)
        if not temperature > 0:
            raise OptionError(f"temperature ({temperature!r}) must be a positive number")
        if sort_net not in ("linear", "mlp", "attention"):
            raise OptionError(f"sort_net ({sort_net!r}) must be linear, mlp or attention")
        if join not in ("joint", "separate"):
            raise OptionError(f"join ({join!r}) must be joint or separate")
        if max_len is None and (block_size is None or sort_net != "attention"):
            raise OptionError(
                'sinkhorn needs max_len: it bounds the blocks. Or block_size= with sort_net="attention"'
            )
        if block_size is None:
            assert max_len is not None
            block_size = max(1, 2 * math.isqrt(max_len))
        check_positive(block_size=block_size)
        self.num_heads, self.block_size, self.temperature = num_heads, block_size, temperature
        self.num_iterations, self.join, self.mixture = num_iterations, join, mixture
        self.sort_cut = sort_cut
        self.heads = Heads(dim, num_heads)
        self.sort_net = None
        if sort_net != "attention":
            assert max_len is not None
            blocks = -(-max_len // block_size)
            self.sort_net = SortNet(dim, num_heads, blocks, hidden=sort_net == "mlp")
        self._declare(max_len)

    def _declare(self, max_len: int | None) -> None:
        if self.sort_net is None:
            self.declare(any_length=True)
        if max_len is None or self.block_size < 2 * math.isqrt(max_len):
            self.declare(time="T C H K + T^2 H K / C", memory="T D + T^2 H / C^2")
        if self.sort_cut is not None:
            check_positive(sort_cut=self.sort_cut)
            if self.join != "joint" or self.mixture:
                raise OptionError(
                    "sinkhorn: sort_cut leaves sorted blocks alone, so join and mixture must be left out"
                )
            why = "the first sorted blocks hold tokens of every place"
            self.declare(causal=No(why), streaming=No(why))
        if self.mixture:
            self.declare(time="T^2 H K")

    def mix(self, x, context, mask):
        q, k, v = self.heads.split(x)
        y = sinkhorn_attention(
            q,
            k,
            v,
            sorting=self._sorting(x, mask),
            block_size=self.block_size,
            mask=mask,
            join=self.join,
            sort_cut=self.sort_cut,
        )
        if self.mixture:
            y = y + softmax_attention(q, k, v, mask=mask)
        return self.heads.merge(y)

    def _sorting(self, x: Tensor, mask: Mask) -> Float[Tensor, "B H N N"]:
        C = self.block_size
        rest = -x.shape[1] % C
        N = (x.shape[1] + rest) // C
        present = None if mask.valid is None else F.pad(mask.valid, (0, rest))
        present = None if present is None else present.unflatten(1, (N, C))
        if self.sort_net is None:
            mean = _summed(x, C) / self._sizes(
                x, present, N
            )  # of blocks: [N D], where q and k are [T D]
            q_blocks = self.heads.queries(x[:, ::C] if mask.causal else mean)
            logits = block_scores(q_blocks, self.heads.keys(mean))
        else:
            whole = _summed(x, C)
            summary = whole.cumsum(1) - whole + x[:, ::C] if mask.causal else whole
            logits = self.sort_net(summary, N)
        logits = self._noisy(logits)
        if mask.causal:
            return earlier_blocks(logits)
        some = None if present is None else present.any(2)
        return balance(logits, some, num_iterations=self.num_iterations)

    def _sizes(self, x: Tensor, present: Tensor | None, N: int) -> Float[Tensor, "b N 1"]:
        """Tokens of each block, at least 1."""
        if present is not None:
            return present.sum(2).clamp(min=1).to(x.dtype)[..., None]
        place = torch.arange(N, device=x.device) * self.block_size
        size = (x.shape[1] - place).clamp(max=self.block_size)
        return size.to(x.dtype)[None, :, None]

    def _noisy(self, logits: Tensor) -> Tensor:
        noise = gumbel(logits) if self.training else 0.0
        return (logits + noise) / self.temperature

    def _initial_state(self, batch_size, max_len, context, valid):
        weight, C = self.heads.value.weight, self.block_size
        room = -(-(max_len or 0) // C) * C
        store = weight.new_zeros(batch_size, self.num_heads, room, self.heads.head_dim)
        total = weight.new_zeros(batch_size, self.dim)
        length = torch.zeros(batch_size, dtype=torch.long, device=weight.device)
        met = weight.new_zeros(batch_size, self.num_heads, 2 * C, self.heads.head_dim)
        return State(store, store.clone(), total, total.clone(), met, met.clone(), length)

    def _extend(self, x, state, valid, donate):
        C, N = self.block_size, x.shape[1]
        q, new_k, new_v = self.heads.split(x)
        at = same_in_all(state.length) if N == 1 and valid is None else None
        if at is not None:
            y, state = self._one_more(x, q, new_k, new_v, state, at, donate)
            return self.heads.merge(y), state
        position = state.length[:, None] + torch.arange(N, device=x.device)
        k, v = (
            _written(store, new, position, C, donate)
            for store, new in ((state.k, new_k), (state.v, new_v))
        )
        G = (N + C - 2) // C + 1  # blocks that N tokens may touch
        block = state.length[:, None] // C + torch.arange(G, device=x.device)
        summary = self._begun(x, q, state, block)
        S = self._rows(summary, block, k)
        offset = position - block[:, :1] * C
        q_blocks = q.new_zeros(*q.shape[:2], G * C, q.shape[3])
        q_blocks = q_blocks.scatter(2, _spread(offset, q), q).unflatten(2, (G, C))
        place = block[..., None] * C + torch.arange(C, device=x.device)
        place = place.flatten(1).clamp(max=k.shape[2] - 1)
        own_k, own_v = (z.gather(2, _spread(place, z)).unflatten(2, (G, C)) for z in (k, v))
        shown = self._sorted(S, k), self._sorted(S, v)
        own, _ = block_pairs(C, G, None, True, x.device)
        shared = (block > 0)[:, :, None, None].expand(-1, -1, -1, C)
        y = beside_sorted(q_blocks, own_k, own_v, *shown, own, shared, join=self.join)
        y = y.flatten(2, 3).gather(2, _spread(offset, y.flatten(2, 3)))
        if self.mixture:
            key = torch.arange(k.shape[2], device=x.device)
            y = y + softmax_attention(
                q, k, v, mask=Mask(pairwise=(key <= position[..., None])[:, None])
            )
        length = advance(state.length, valid, N)
        current = ((length - 1) // C - block[:, 0]).clamp(min=0)
        row = torch.arange(x.shape[0], device=x.device)
        met_k, met_v = (
            torch.cat([z[row, :, current] for z in both], dim=2)
            for both in zip(shown, (own_k, own_v), strict=True)
        )
        total, summary = state.total + x.sum(1), summary[row, current]
        return self.heads.merge(y), State(k, v, total, summary, met_k, met_v, length)

    def _one_more(
        self,
        x: Tensor,
        q: Tensor,
        new_k: Tensor,
        new_v: Tensor,
        state: State,
        at: int,
        donate: bool,
    ) -> tuple[Float[Tensor, "B H 1 V"], State]:
        """A token at place `at` of every row. What its block sees sorted was mixed for the block's first token."""
        C, where, summary = self.block_size, state.length[:, None], state.summary
        k, v = (
            _written(store, new, where, C, donate)
            for store, new in ((state.k, new_k), (state.v, new_v))
        )
        met = state.met_k, state.met_v
        if not is_ours(donate, *met, q, new_k, new_v):
            met = met[0].clone(), met[1].clone()
        if at % C == 0:
            block = where // C
            begun = self._begun(x, q, state, block)
            S, summary = self._rows(begun, block, k), begun[:, 0]
            for z, store in zip(met, (k, v), strict=True):
                z[:, :, :C] = self._sorted(S, store)[:, :, 0]
        end = C + at % C + 1
        for z, new in zip(met, (new_k, new_v), strict=True):
            z[:, :, end - 1 : end] = new
        seen = [slice(C, end)]
        if at >= C:
            seen = [slice(0, end)] if self.join == "joint" else [slice(0, C), *seen]
        parts = [softmax_attention(q, met[0][:, :, some], met[1][:, :, some]) for some in seen]
        if self.mixture:
            parts.append(softmax_attention(q, k[:, :, : at + 1], v[:, :, : at + 1]))
        y = parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)
        total = state.total + x[:, 0]
        return y, State(k, v, total, summary, *met, state.length + 1)

    def _sorted(
        self, S: Float[Tensor, "B H G N"], store: Float[Tensor, "B H T K"]
    ) -> Float[Tensor, "B H G C K"]:
        return mixed(S, store.unflatten(2, (-1, self.block_size))[:, :, : S.shape[3]])

    def _begun(self, x, q, state: State, block: Int[Tensor, "B G"]) -> Float[Tensor, "B G D"]:
        """What the sorting network sees of each block, known from its first token on."""
        if self.sort_net is None:
            known = q.transpose(1, 2).flatten(2)
        else:
            known = state.total[:, None] + x.cumsum(1)
        first = block * self.block_size - state.length[:, None]
        at = first.clamp(0, x.shape[1] - 1)[..., None].expand(-1, -1, self.dim)
        return torch.where((first < 0)[..., None], state.summary[:, None], known.gather(1, at))

    def _rows(self, summary, block: Int[Tensor, "B G"], k) -> Float[Tensor, "B H G N"]:
        """Rows of the causal sorting."""
        N = k.shape[2] // self.block_size
        if self.sort_net is None:
            q = summary.unflatten(2, (self.num_heads, -1)).transpose(1, 2)
            logits = block_scores(q, _summed(k, self.block_size) / self.block_size)
        else:
            logits = self.sort_net(summary, min(N, self.sort_net.max_blocks))
        logits = self._noisy(logits)
        earlier = torch.arange(logits.shape[3], device=block.device) < block[..., None]
        return masked_softmax(logits, earlier[:, None])

    def _observe(self, x, context, mask):
        q, k, v = self.heads.split(x)
        T, C = x.shape[1], self.block_size
        S = self._sorting(x, mask)
        (q_blocks, k_blocks), valid = in_blocks(q, k, block_size=C, mask=mask)
        if self.sort_cut is not None:
            S = S[:, :, : self.sort_cut].to(q.dtype)
            keys = mixed(S, k_blocks).flatten(2, 3)
            seen = None if valid is None else cut_keys(valid, S.shape[2])
            slots = softmax_weights(q, keys, mask=Mask(valid=seen)).unflatten(3, (-1, C))
            weights = torch.einsum("bhigt,bhgu->bhiut", slots, S).flatten(3)[..., :T]
        else:
            pairs = block_pairs(C, q_blocks.shape[2], valid, mask.causal, q.device)
            weights = block_weights(q_blocks, k_blocks, S, *pairs, join=self.join)[:, :, :T, :T]
        if mask.valid is not None:
            weights = weights * mask.valid[:, None, None]
        if self.mixture:
            weights = weights + softmax_weights(q, k, mask=mask)
        return Observation(q, k, v, weights, weights @ v)


def _summed(z: Float[Tensor, "*B T K"], block_size: int) -> Float[Tensor, "*B N K"]:
    rest = -z.shape[-2] % block_size
    z = F.pad(z, (0, 0, 0, rest)) if rest else z
    return z.unflatten(-2, (-1, block_size)).sum(-2)


def _spread(index: Int[Tensor, "B l"], like: Float[Tensor, "B H T K"]) -> Int[Tensor, "B H l K"]:
    return index[:, None, :, None].expand(-1, like.shape[1], -1, like.shape[3])


def _written(store: Tensor, new: Tensor, position: Tensor, block_size: int, donate: bool) -> Tensor:
    """The store with new tokens at their positions. Absent tokens come last and write where later ones will."""
    needed = -(-(int(position.max()) + 1) // block_size) * block_size
    if needed > store.shape[2]:
        room = max(needed, 2 * store.shape[2])
        store = F.pad(store, (0, 0, 0, room - store.shape[2]))
        donate = True
    tracked = torch.is_grad_enabled() and (store.requires_grad or new.requires_grad)
    index, new = _spread(position, new), new.to(store.dtype)
    return store.scatter_(2, index, new) if donate and not tracked else store.scatter(2, index, new)
