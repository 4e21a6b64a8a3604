import math

import pytest
import torch

from regard.functional.clustered.top_k import top_k


@pytest.mark.parametrize("n", [13, 208, 1601, 1615])
def test_the_largest_are_found_by_groups_too(n):
    """Below 16 k numbers at once, above by groups, with and without numbers that are in none."""
    z = torch.randn(2, 5, n, generator=torch.Generator().manual_seed(n))
    z[0] = z[0].masked_fill(torch.arange(n) > 15, -math.inf)  # mostly absent
    z[1, 0] = torch.arange(n)  # the last ones
    found = top_k(z, 13, by_groups=True)
    assert found.sort(-1)[0].unique_consecutive(dim=-1).shape == (2, 5, 13)
    assert torch.equal(z.gather(-1, found).sort(-1)[0], z.topk(13)[0].sort(-1)[0])
