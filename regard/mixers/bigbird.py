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

Args:
    block_size: tokens in a block
    num_random: random blocks that a block of queries sees
    global_blocks: True: the first and the last block see all and are seen by all
    num_external: learned tokens that every query sees, beside those of the input
    seed: seed of the random numbers; None: from torch's generator
"""

from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.core import Count, Mask, No, Seed
from regard.functional.patterns import Block, First, Scattered, Span, Union
from regard.functional.rows import Impl, upto
from regard.mixers._base import Options
from regard.mixers._patterned import PatternMixer


class BigBird(PatternMixer):
    __doc__ = __doc__
    name = "bigbird"
    family = "block-sparse"
    paper = "Zaheer et al. 2020, arXiv 2007.14062"
    capabilities = PatternMixer.capabilities.but(
        any_length=No("its random blocks are drawn once, for max_len"),
        time="T C H K",
        state="T H K",
        exchange=No("its random blocks are anywhere in the row"),
    )
    variants = {
        "small": {"block_size": 2, "num_random": 2},
        "odd": {"block_size": 3, "num_random": 1, "seed": 5},
        "etc": {"block_size": 2, "num_random": 1, "num_external": 3, "global_blocks": False},
        "grouped": {"block_size": 2, "num_kv_heads": 1, "position": "rotary"},
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
        num_random: Count = 3,
        global_blocks: bool = True,
        num_external: Count = 0,
        seed: Seed = 0,
        num_kv_heads: int | None = None,
        position: str | None = None,
        position_options: Options | None = None,
        impl: Impl = "auto",
    ):
        super().__init__(
            dim, num_heads, num_kv_heads, impl, position, position_options, max_len=max_len
        )
        self._add_external(num_external)
        self.block_size = block_size
        self.global_blocks = global_blocks
        first = (First(block_size),) if global_blocks else ()
        self.near = [(*first, Block(block_size, 1, 1)), (*first, Block(block_size, 1))]
        self._draw = partial(
            draw_blocks,
            num_heads,
            -(-max_len // block_size),
            num_random,
            seed=seed,
            first_is_global=global_blocks,
        )
        for name, causal in (("random_blocks", False), ("past_blocks", True)):
            self.register_buffer(name, self._draw(causal=causal).to(torch.empty(0).device))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.random_blocks.copy_(self._draw(causal=False))
        self.past_blocks.copy_(self._draw(causal=True))

    def _request(self, T, mask):
        b = self.block_size
        table = self.past_blocks if mask.causal else self.random_blocks
        pattern = Union((*self.near[mask.causal], Scattered(b, table)))
        if mask.causal or not self.global_blocks:
            return pattern, mask, None
        if mask.valid is None and mask.global_tokens is None:
            return Union((Span((T - 1) // b * b, T), *pattern.terms)), mask, None
        most = b if mask.global_tokens is None else None
        return pattern, replace(mask, global_tokens=self._global_tokens(T, mask)), most

    def _global_tokens(self, T: int, mask: Mask) -> Bool[Tensor, "B T"]:
        """The last block of every row, and the global tokens of the mask."""
        given = mask.global_tokens if mask.valid is None else mask.valid
        assert given is not None
        place = upto(T, given)
        length = T if mask.valid is None else mask.valid.sum(1, keepdim=True)
        start = (length - 1) // self.block_size * self.block_size
        last = ((place >= start) & (place < length)).expand(given.shape[0], T)
        return last if mask.global_tokens is None else last | mask.global_tokens

    def _plan(self, x, context, mask):
        table = self.past_blocks if mask.causal else self.random_blocks
        return {"random_blocks": table[:, : -(-x.shape[1] // self.block_size)]}


def draw_blocks(
    num_heads: int, num_blocks: int, count: int, *, seed: int, causal: bool, first_is_global: bool
) -> Int[Tensor, "H N r"]:
    """`count` different blocks for each head and block, from `seed`; -1 where there are not so many to choose from.

    None of the block's own window (one block to each side), nor the first where it is global; only earlier ones when
    `causal` (Zaheer et al. 2020, arXiv 2007.14062).
    """
    generator = torch.Generator().manual_seed(seed + causal)
    own = torch.arange(num_blocks, device="cpu")
    first = int(first_is_global)
    near = (own - 1).clamp_min(first)  # where the window begins
    width = ((own + 2).clamp_max(num_blocks) - near).clamp_min(0)
    choice = (near if causal else num_blocks - width) - first
    if first_is_global:
        choice = choice.masked_fill(own == 0, 0)
    drawn = torch.full((num_heads, num_blocks, count), -1, device="cpu")
    for n in range(count):  # Floyd's sampling without replacement
        last = choice - count + n
        lot = torch.rand(
            num_heads, num_blocks, generator=generator, device="cpu", dtype=torch.float64
        )
        rank = (lot * (last + 1)).long()
        taken = (drawn == rank[..., None]).any(-1)
        drawn[:, :, n] = torch.where(last < 0, -1, torch.where(taken, last, rank))
    block = drawn + first
    if not causal:
        block = torch.where(block >= near[:, None], block + width[:, None], block)
    return torch.where(drawn < 0, -1, block)
