"""Plain networks of linear layers with activations: one, and several of one shape computed together.

DNN: x [B D] -> [B F]        Experts: x [B D] -> [B n E],  f_i(x) = relu(.. relu(x W_1i + b_1i) .. W_Li + b_Li)
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.starts import glorot_matrices

Widths = tuple[int, ...]
"""Channels of one layer after another."""


class DNN(nn.Module):
    """Linear layers, each with an activation after it. activation: makes the one that follows a layer of this width, `Dice` say."""

    def __init__(
        self,
        dim: int,
        hidden_dims: Widths,
        *,
        activation: Callable[[int], nn.Module] = lambda _: nn.ReLU(),
    ):
        super().__init__()
        self.layers = nn.Sequential()
        for width in hidden_dims:
            self.layers += nn.Sequential(nn.Linear(dim, width), activation(width))
            dim = width
        self.out_dim = dim

    def forward(self, x: Float[Tensor, "B D"]) -> Float[Tensor, "B F"]:
        return self.layers(x)


class Experts(nn.Module):
    """Ma et al. 2018 (KDD); every layer ends in a ReLU, weights start with Glorot for each expert."""

    def __init__(self, dim: int, num_experts: int, hidden_dims: Widths):
        super().__init__()
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for width in hidden_dims:
            self.weights.append(torch.empty(num_experts, dim, width))
            self.biases.append(torch.empty(num_experts, width))
            dim = width
        self.num_experts = num_experts
        self.out_dim = dim
        self.reset_parameters()

    def reset_parameters(self) -> None:
        glorot_matrices(*self.weights)
        for bias in self.biases:
            nn.init.zeros_(bias)

    def forward(self, x: Float[Tensor, "B D"]) -> Float[Tensor, "B n E"]:
        hidden = x.expand(self.num_experts, -1, -1)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            hidden = torch.relu(hidden @ weight + bias[:, None])
        return hidden.transpose(0, 1)
