"""Chunked feed-forward: tokens are independent, so a part of them at a time (Kitaev et al. 2020, arXiv 2001.04451).

The function is the same for any chunk; the widest activations held at once are those of `chunk_size` tokens and not of T.
In training the gain needs `recompute`, as autograd would store every chunk: each chunk is computed again for its backward.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.core.shapes import check_positive


class Chunked(nn.Module):
    """`layer` [B t D] -> [B t E], applied to `chunk_size` tokens at a time. With dropout the masks are drawn chunk by chunk."""

    def __init__(self, layer: nn.Module, chunk_size: int, *, recompute: bool = True):
        super().__init__()
        check_positive(chunk_size=chunk_size)
        self.layer, self.chunk_size, self.recompute = layer, chunk_size, recompute

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T E"]:
        again = self.recompute and torch.is_grad_enabled()
        parts = [
            checkpoint(self.layer, part, use_reentrant=False) if again else self.layer(part)
            for part in x.split(self.chunk_size, dim=1)
        ]
        return torch.cat(parts, dim=1)
