"""Values: the projections around mixing weights that need neither queries nor keys."""

from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from regard.core.shapes import check_divisible, check_positive
from regard.nn.heads import split_heads
from regard.nn.starts import Glorot, glorot


class Values(nn.Module):
    """v = values.split(x); y = values.merge(weights @ v). Glorot initialisation, as in `Heads`."""

    def __init__(self, dim: int, num_heads: int):
        super().__init__()
        check_positive(num_heads=num_heads)
        check_divisible(dim=dim, num_heads=num_heads)
        self.num_heads, self.head_dim = num_heads, dim // num_heads
        self.value = Glorot(dim, dim, bias=False)
        self.out = Glorot(dim, dim, bias=False)
        glorot(self.value, self.out)

    def split(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B H S V"]:
        return split_heads(self.value(x), self.num_heads, self.head_dim)

    def merge(self, mixed: Float[Tensor, "B H T V"]) -> Float[Tensor, "B T D"]:
        return self.out(rearrange(mixed, "b h t v -> b t (h v)"))
