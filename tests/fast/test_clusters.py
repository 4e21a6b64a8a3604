import math

import pytest
import torch

from regard.core import Mask
from regard.fast.cpu.clusters import attend
from regard.functional.rows import Form

B, H, T, N, W = 2, 2, 40, 3, 9


def one_by_one(q, k, v, queries, keys, scale, pairwise):
    """Clusters as sets, tokens as rows of a whole matrix."""
    y, count = torch.zeros_like(v), torch.zeros(*v.shape[:3], 1, dtype=v.dtype)
    for b, h, n in ((b, h, n) for b in range(B) for h in range(H) for n in range(N)):
        asked, offered = (z[b, h, n][z[b, h, n] >= 0] for z in (queries, keys))
        for i in asked.tolist():
            seen = [j for j in offered.tolist() if pairwise is None or pairwise[b, 0, i, j]]
            if seen:
                weights = (scale * k[b, h, seen] @ q[b, h, i]).softmax(0)
                y = y.index_put(
                    tuple(map(torch.tensor, (b, h, i))), weights @ v[b, h, seen], accumulate=True
                )
                count[b, h, i] += 1
    return y / count.clamp(min=1)


@pytest.mark.parametrize("room", [1, 1 << 20])
@pytest.mark.parametrize("kind", ["all", "fewer", "pairs"])
def test_tokens_attend_inside_their_clusters(kind, room):
    """Clusters that overlap, lack members, or hold queries that may see none of its keys; outputs and gradients."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, g = (
        torch.randn(B, H, T, 4, generator=generator, dtype=torch.float64) for _ in range(4)
    )
    leaves = [z.requires_grad_() for z in (q, k, v)]
    sides = [torch.rand(B, H, N, T, generator=generator).argsort(-1)[..., :W].clone() for _ in "qk"]
    mask, pairwise = Mask(), None
    if kind in ("fewer", "pairs"):
        pairwise = torch.rand(B, 1, T, T, generator=generator) < (0.2 if kind == "pairs" else 2)
        mask = Mask(pairwise=pairwise)
        for side in sides:
            side[:, 1, 0, 4:] = -1
    scale = 1 / math.sqrt(4)
    y = attend(*leaves, *sides, mask=mask, form=Form(room=room))
    wanted = one_by_one(*leaves, *sides, scale, pairwise)
    torch.testing.assert_close(y, wanted, rtol=0, atol=1e-12)
    for ours, theirs in zip(
        torch.autograd.grad(y, leaves, g), torch.autograd.grad(wanted, leaves, g), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
