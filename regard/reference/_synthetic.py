"""What the Synthesizer oracles share: given logits, softmax over the allowed keys, values, output projection."""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.reference._rows import Row, linear, run, softmax


def synthetic(
    logits: Callable[[Row, int, int], Tensor], params, options, x, **request
) -> tuple[Tensor, Tensor | None]:
    """`logits(row, h, i)` [T]: the numbers of query i before the softmax."""
    H = options["num_heads"]

    def mix_row(row: Row) -> tuple[Tensor, Tensor]:
        v = linear(params, "synthesis.values.value", row.x).reshape(row.T, H, -1)
        weights = x.new_zeros(H, row.T, row.T)
        mixed = []
        for i in range(row.T):
            heads = []
            for h in range(H):
                given = logits(row, h, i)
                scores = [given[j] if row.allowed[h][i][j] else None for j in range(row.T)]
                y = x.new_zeros(v.shape[-1])
                for j, w in enumerate(softmax(scores)):
                    if w is not None:
                        weights[h, i, j] = w.detach()
                        y = y + w * v[j, h]
                heads.append(y)
            mixed.append(torch.cat(heads))
        return linear(params, "synthesis.values.out", torch.stack(mixed)), weights

    return run(mix_row, x, num_heads=H, **request)
