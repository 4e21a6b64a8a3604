"""exp at one speed for all numbers.

`torch.exp` on a CPU takes 20 to 200 times as long for -inf, or where the result vanishes, as it takes for small
numbers, and masked scores are full of both. `torch.exp2` does not: exp(x) = 2^(x log2 e), with |x| 2^-24 relative error.
"""

import math

from torch import Tensor

LOG2_E = math.log2(math.e)


def exp(x: Tensor) -> Tensor:
    return (x * LOG2_E).exp2_()


def exp_(x: Tensor) -> Tensor:
    """In place."""
    return x.mul_(LOG2_E).exp2_()
