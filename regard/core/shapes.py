"""Shape letters, and checks of sizes.

B batch, T queries, S keys, D model width, H heads, G key/value heads, K query-key width, V value width,
F feed-forward width, C chunk, N chunks, W window, M features, landmarks or memory, E experts.
"""

from collections.abc import Callable
from typing import TypeGuard

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core.errors import OptionError, ShapeError, shown

LARGEST = 2**31 - 1
"""No size may exceed it."""

Tokens = Float[Tensor, "B T D"]
OtherTokens = Float[Tensor, "B S D"]
"""Tokens that keys and values are made of."""
Context = OtherTokens | None
"""Tokens of another sequence; None: the tokens themselves."""
Marks = Bool[Tensor, "B S"]
"""True at some tokens: those that exist, say."""
NewTokens = Float[Tensor, "B N D"]
NewMarks = Bool[Tensor, "B N"] | None
"""True at the next tokens that exist; None: all do."""
NewNumbers = Int[Tensor, "B N"] | None
"""The document of each of the next tokens; None: the last one."""
Positions = Int[Tensor, "b T"]
"""The position of each token; b is 1 where it is that of every row."""
Queries = Float[Tensor, "B H T K"]
Keys = Float[Tensor, "B H S K"]
Values = Float[Tensor, "B H S V"]
OwnKeys = Float[Tensor, "B H T K"]
OwnValues = Float[Tensor, "B H T V"]
"""They are of the tokens of the queries: as many."""
SharedKeys = Float[Tensor, "B G S K"]
SharedValues = Float[Tensor, "B G S V"]
"""They are of G heads, each of which serves as many heads of queries."""
Mixed = Float[Tensor, "B H T V"]
"""What the queries of each head have read."""
MixedTile = Float[Tensor, "B H t V"]
"""The same for the queries of a tile."""
Weights = Float[Tensor, "B H T S"]
"""The share of each key in each query's output, by head."""
Scalar = Float[Tensor, ""]
Vectors = Float[Tensor, "*b D"]
TensorMap = Callable[[Tensor], Tensor]


def check_divisible(**sizes: int) -> None:
    """`check_divisible(dim=65, num_heads=8)` -> "dim (65) must be divisible by num_heads (8)"."""
    (big, total), (small, part) = sizes.items()
    if total % part:
        raise OptionError(f"{big} ({total}) must be divisible by {small} ({part})")


def check_even(**sizes: int) -> None:
    """`check_even(key_dim=7)` -> "key_dim (7) must be even: a rotation turns channels in pairs"."""
    for name, size in sizes.items():
        if size % 2:
            raise OptionError(f"{name} ({size}) must be even: a rotation turns channels in pairs")


def check_positive(**sizes: int) -> None:
    """`check_positive(window_size=0)` -> "window_size (0) must be a positive integer"."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise OptionError(f"{name} ({shown(size)}) must be a positive integer")


def check_flag(**flags: bool) -> None:
    """`check_flag(norm_first="x")` -> "norm_first ('x') must be True or False"."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise OptionError(f"{name} ({shown(flag)}) must be True or False")


def is_dense(x: object) -> TypeGuard[Tensor]:
    """True for a tensor that is neither sparse, nested nor quantised, nor of floats of 8 bits, which torch stores alone."""
    if not isinstance(x, Tensor) or x.layout != torch.strided or x.is_nested or x.is_quantized:
        return False
    return x.itemsize > 1 or not x.is_floating_point()


def in_parts(module: nn.Module) -> bool:
    """True where FSDP cuts parameters of the module, or of a part, and gathers them for its call."""
    return any(hasattr(part, "unshard") for part in module.modules())


def layout(x: Tensor) -> str:
    return "a nested tensor" if x.is_nested else str(x.layout)


def is_mapped(z: Tensor) -> bool:
    """True for what torch.func.vmap maps over, also inside its other transforms: the values cannot be read."""
    func = torch._C._functorch
    while not torch.compiler.is_compiling() and func.is_functorch_wrapped_tensor(z):
        if func.is_batchedtensor(z):
            return True
        z = func.get_unwrapped(z)
    return False


def require_all(holds: Bool[Tensor, "*shape"], said: str) -> None:
    """Raise ShapeError where one does not hold. A device and a program refuse it by themselves, so that nobody waits; under vmap nobody can tell."""
    if holds.is_meta or is_mapped(holds):
        return
    if holds.device.type != "cpu" or torch.compiler.is_compiling():
        torch._assert_async(holds.all(), said)
    elif not holds.all():
        raise ShapeError(said)
