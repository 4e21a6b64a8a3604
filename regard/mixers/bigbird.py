"""BigBird: window, global and random blocks (Zaheer et al. 2020, arXiv 2007.14062).

    block g of queries sees blocks g - 1, g, g + 1, the first and the last block, and r random blocks
    the first and the last block see everything                            (each key once; blocks of `block_size` tokens)

`num_external` learned tokens that all queries see (the ETC form) come besides, or instead with `global_blocks=False`.
Causal: j <= i, random blocks drawn from the past, no last block. The random blocks are drawn once for `max_len`, head
by head, from `seed`, without those of the window and the first; they are buffers, saved with the weights. Deviations:
the last block is that of each row's valid tokens, where the official code takes the padded length's; random blocks
beyond the row's end are left out; short rows do not switch to full attention; external tokens are keys only.

Cost: T C (5 + r) (K + V) per head, C the block size; T^2 where the mask gives global tokens, for any token may be one.
State: every key, since any block may be drawn later. The output projection has no bias.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from regard.core import Capabilities, Mask, Mixer, No, Observation
from regard.core.shapes import check_positive
from regard.functional.sparse.attention import pattern_attention, pattern_weights
from regard.functional.sparse.cache import empty_state, extend_pattern
from regard.functional.sparse.patterns import Block, First, Pattern, Scattered, Span, draw_blocks
from regard.nn.heads import Heads


class BigBird(Mixer):
    name = "bigbird"
    family = "block-sparse"
    paper = "Zaheer et al. 2020, arXiv 2007.14062"
    capabilities = Capabilities(
        causal=True,
        pairwise=True,
        global_tokens=True,
        cross=No("a block pattern needs queries and keys on one axis"),
        streaming="exact",
        attention_map=True,
        any_length=No("its random blocks are drawn once, for max_len"),
        positions=frozenset({"absolute"}),
        time="T C H K",
        memory="T D",
        state="T H K",
    )
    variants = {
        "small": {"block_size": 2, "num_random": 2},
        "odd": {"block_size": 3, "num_random": 1, "seed": 5},
        "etc": {"block_size": 2, "num_random": 1, "num_external": 3, "global_blocks": False},
    }
    limits = {"softmax": ({"block_size": 64, "num_random": 0}, {})}

    random_blocks: Tensor
    past_blocks: Tensor

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        max_len: int,
        block_size: int = 64,
        num_random: int = 3,
        global_blocks: bool = True,
        num_external: int = 0,
        seed: int = 0,
    ):
        super().__init__(dim, max_len=max_len)
        check_positive(num_heads=num_heads, block_size=block_size, num_random=num_random + 1)
        check_positive(num_external=num_external + 1)
        self.num_heads, self.block_size, self.global_blocks = num_heads, block_size, global_blocks
        self.heads = Heads(dim, num_heads)
        self.external = (
            nn.Parameter(torch.randn(num_external, dim) * 0.02) if num_external else None
        )
        blocks = -(-max_len // block_size)
        for name, causal in (("random_blocks", False), ("past_blocks", True)):
            table = draw_blocks(
                num_heads,
                blocks,
                num_random,
                seed=seed,
                causal=causal,
                first_is_global=global_blocks,
            )
            self.register_buffer(name, table.to(torch.empty(0).device))

    def mix(self, x, context, mask):
        q, k, v = self.heads.split(x)
        T, pattern, external = x.shape[1], self._pattern(mask.causal), self._external(x.shape[0])
        if mask.valid is None and mask.global_tokens is None:
            if self.global_blocks and not mask.causal:
                pattern = Span((T - 1) // self.block_size * self.block_size, T) | pattern
            mixed = pattern_attention(q, k, v, pattern=pattern, mask=mask, external=external)
            return self.heads.merge(mixed)
        only_last = mask.global_tokens is None
        mixed = pattern_attention(
            q,
            k,
            v,
            pattern=pattern,
            mask=self._with_last_block(mask, x),
            external=external,
            max_global=self.block_size if only_last else None,
        )
        return self.heads.merge(mixed)

    def _pattern(self, causal: bool) -> Pattern:
        b = self.block_size
        pattern = Block(b, 1, 0 if causal else 1) | Scattered(
            b, self.past_blocks if causal else self.random_blocks
        )
        return First(b) | pattern if self.global_blocks else pattern

    def _with_last_block(self, mask: Mask, x: Tensor) -> Mask:
        """The last block of every row among its global tokens."""
        (B, T), device = x.shape[:2], x.device
        if mask.causal or not self.global_blocks:
            return mask
        place = torch.arange(T, device=device)
        if mask.valid is None:
            length = torch.full((B, 1), T, device=device)
        else:
            length = mask.valid.sum(1, keepdim=True)
        start = (length - 1) // self.block_size * self.block_size
        last = (place >= start) & (place < length)
        if mask.global_tokens is not None:
            last = last | mask.global_tokens
        return replace(mask, global_tokens=last)

    def _external(self, B: int) -> tuple[Tensor, Tensor] | None:
        if self.external is None:
            return None
        k, v = self.heads.keys(self.external[None]), self.heads.values(self.external[None])
        return k.expand(B, -1, -1, -1), v.expand(B, -1, -1, -1)

    def _initial_state(self, batch_size, max_len, context, valid):
        weight, pattern = self.heads.value.weight, self._pattern(causal=True)
        return empty_state(
            weight, batch_size, self.num_heads, self.heads.head_dim, pattern, max_len
        )

    def _extend(self, x, state, valid, donate):
        q, k, v = self.heads.split(x)
        pattern, external = self._pattern(causal=True), self._external(x.shape[0])
        mixed, state = extend_pattern(
            q, k, v, state, pattern=pattern, valid=valid, donate=donate, external=external
        )
        return self.heads.merge(mixed), state

    def _observe(self, x, context, mask):
        q, k, v = self.heads.split(x)
        external_k, external_v = self._external(x.shape[0]) or (k[:, :, :0], v[:, :, :0])
        weights = pattern_weights(
            q,
            k,
            pattern=self._pattern(mask.causal),
            mask=self._with_last_block(mask, x),
            external=external_k,
        )
        return Observation(q, k, v, weights, weights @ torch.cat([external_v, v], dim=2))

    def _plan(self, x, context, mask):
        table = self.past_blocks if mask.causal else self.random_blocks
        return {"random_blocks": table[:, : -(-x.shape[1] // self.block_size)]}
