"""Our side of a pair: a mixer as a layer, or as a core, without its projections."""

import torch
from pairs import Case, Pair
from torch import Tensor, nn

import regard
from regard.nn.heads import Heads
from regard.testing.counting import count


class ReadyHeads(Heads):
    """Heads without projections: q, k, v [B H T K] are set beforehand, and mixed values are returned as they are."""

    given: tuple[Tensor, Tensor, Tensor]

    def queries(self, x: Tensor, after: Tensor | None = None) -> Tensor:
        return self.given[0]

    def keys(self, x: Tensor, after: Tensor | None = None) -> Tensor:
        return self.given[1]

    def values(self, x: Tensor) -> Tensor:
        return self.given[2]

    def merge(self, mixed: Tensor) -> Tensor:
        return mixed


class Layer(nn.Module):
    def __init__(self, mixer: regard.Mixer, mask: regard.Mask):
        super().__init__()
        self.mixer, self.mask = mixer, mask

    def forward(self, x: Tensor) -> Tensor:
        return self.mixer(x, mask=self.mask)


class Core(Layer):
    def __init__(self, mixer: regard.Mixer, mask: regard.Mask, case: Case):
        super().__init__(mixer, mask)
        self.heads = mixer.heads = ReadyHeads(case.dim, case.num_heads)
        self.register_buffer("x", torch.zeros(case.batch, case.length, case.dim))

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.heads.given = (q, k, v)
        return self.mixer.mix(self.x, None, self.mask)


def build_ours(pair: Pair, case: Case) -> nn.Module:
    mixer = regard.build(
        pair.mixer,
        dim=case.dim,
        num_heads=case.num_heads,
        max_len=case.length,
        **pair.options(case),
    )
    mask = regard.Mask(causal=case.causal)
    return Layer(mixer, mask) if pair.scope == "layer" else Core(mixer, mask, case)


def given(pair: Pair, case: Case) -> list[Tensor]:
    """Inputs of a pair: x [B T D] for a layer; q, k, v [B H T K] for a core."""
    generator = torch.Generator().manual_seed(case.length)
    shape = (case.batch, case.num_heads, case.length, case.head_dim)
    if pair.scope == "layer":
        x = torch.randn(case.batch, case.length, case.dim, generator=generator)
        return [x.requires_grad_()]
    return [torch.randn(shape, generator=generator).requires_grad_() for _ in "qkv"]


def forward_cost(module: nn.Module, inputs: list[Tensor]) -> tuple[int, int]:
    """Counted operations of one forward pass, and how many of them are channel projections."""
    projections = 0

    def add(linear: nn.Linear, args: tuple[Tensor], _: Tensor) -> None:
        nonlocal projections
        projections += 2 * args[0].numel() * linear.out_features

    hooks = [
        part.register_forward_hook(add) for part in module.modules() if type(part) is nn.Linear
    ]
    module.eval()
    with torch.no_grad():
        flops = count(lambda: module(*inputs)).flops
    for hook in hooks:
        hook.remove()
    return flops, projections
