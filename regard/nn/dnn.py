"""A plain network: linear layers, each with an activation after it. x [B D] -> [B hidden_dims[-1]]"""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from regard.core.shapes import check_positive


class DNN(nn.Module):
    """activation: makes the one that follows a layer of this width, `Dice` or `lambda width: nn.ReLU()`."""

    def __init__(
        self, dim: int, hidden_dims: tuple[int, ...], *, activation: Callable[[int], nn.Module]
    ):
        check_positive(
            dim=dim, **{f"hidden_dims[{i}]": width for i, width in enumerate(hidden_dims)}
        )
        super().__init__()
        self.layers = nn.Sequential()
        for width in hidden_dims:
            self.layers += nn.Sequential(nn.Linear(dim, width), activation(width))
            dim = width
        self.out_dim = dim

    def forward(self, x: Float[Tensor, "B D"]) -> Float[Tensor, "B F"]:
        return self.layers(x)
