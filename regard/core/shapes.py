"""Shape letters, and the checks made once at the outermost door.

B batch, T queries, S keys, D model width, H heads, G key/value heads, K query-key width, V value width,
F feed-forward width, C chunk, N chunks, W window, M features, landmarks or memory, E experts.
"""

from torch import Tensor

from regard.core.errors import OptionError, ShapeError


def check_divisible(**sizes: int) -> None:
    """`check_divisible(dim=65, num_heads=8)` -> "dim (65) must be divisible by num_heads (8)"."""
    (big, total), (small, part) = sizes.items()
    if total % part:
        raise OptionError(f"{big} ({total}) must be divisible by {small} ({part})")


def check_positive(**sizes: int) -> None:
    """`check_positive(window_size=0)` -> "window_size (0) must be a positive integer"."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise OptionError(f"{name} ({size!r}) must be a positive integer")


def check_tokens(who: str, name: str, x: object, dim: int) -> None:
    """x must be a floating tensor [B, T >= 1, dim]."""
    if not isinstance(x, Tensor):
        raise ShapeError(f"{who}: {name} must be a tensor [B, T, {dim}], got {type(x).__name__}")
    if x.dim() != 3 or x.shape[-1] != dim:
        raise ShapeError(f"{who}: {name} must have shape [B, T, {dim}], got {list(x.shape)}")
    if x.shape[1] < 1:
        raise ShapeError(f"{who}: {name} must hold at least one token, got {list(x.shape)}")
    if not x.is_floating_point():
        raise ShapeError(
            f"{who}: {name} must be floating point, got {x.dtype}. Embed token ids first."
        )
