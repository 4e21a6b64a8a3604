"""Shared by the oracles of gated layers: GAU, FLASH and mixed chunks (arXiv 2202.10447), gMLP and MLP-Mixer."""

from collections.abc import Callable

from torch import Tensor
from torch.nn.functional import silu

from regard.reference._rotary import rope
from regard.reference._rows import Numbers, Params, Row, linear, mix


def share(options, row: Row, i: int) -> float:
    """The factor of the linear part for query i."""
    C = options["chunk_size"]
    summed = i // C * C if row.causal else row.T
    if options["lin_norm"] == "n":
        return 1 / options["max_len"]
    if options["lin_norm"] == "chunk" and row.causal:
        return 1 / C
    return 1 / max(1, summed)


def chunked(
    options, row: Row, i: int, near: Callable[[list[int]], Numbers], far: Callable[[int], Tensor]
) -> Numbers:
    """Weights of query i: `near` over the keys of its chunk, and its share of `far` of each key between chunks."""
    C, parts = options["chunk_size"], options["parts"]
    seen = range(i + 1 if row.causal else row.T)
    inside, between = {}, {}
    if parts != "global":
        inside = near([j for j in seen if j // C == i // C])
    if parts != "local":
        summed = [j for j in seen if not row.causal or j // C < i // C]
        between = {j: share(options, row, i) * far(j) for j in summed}
    none = row.x.new_zeros(())
    return {j: inside.get(j, none) + between.get(j, none) for j in inside | between}


def view(params: Params, x: Tensor, n: int, first: int = 0) -> list[Tensor]:
    """z gamma_n + beta_n of z = silu(x W_z), turned by places from `first` on."""
    z = silu(linear(params, "unit.shared", x))
    gamma = params["unit.offset_scale.gamma"][n]
    beta = params["unit.offset_scale.beta"][n]
    return [rope(z[i] * gamma + beta, first + i) for i in range(len(z))]


def relative(
    params: Params, options, row: Row, reach: int, first: int = 0
) -> Callable[[int, int], Tensor | float]:
    """b_ij, queries counted from `first`; "toeplitz" has one number for each distance below `reach`."""
    form = options["relative_bias"]
    if form is None:
        return lambda i, j: 0.0
    weight = params["relative.weight"]
    if form == "toeplitz":
        return lambda i, j: weight[j - first - i + reach - 1]
    left = [rope(weight[0], first + i) for i in range(row.T)]
    right = [rope(weight[1], j) for j in range(row.S)]
    return lambda i, j: left[i] @ right[j]


def gated(params: Params, row: Row, weigh: Callable) -> tuple[Tensor, Tensor]:
    """(u * mixed) W_out, u = silu(x W_u), of mixed values silu(x W_v), and the weights."""
    v = silu(linear(params, "unit.value", row.context))
    mixed, weights = mix(row, v[:, None], weigh)
    return linear(params, "unit.out", silu(linear(params, "unit.gate", row.x)) * mixed), weights
