"""What every oracle shares: one row of the batch at a time, invalid tokens removed, allowed pairs by the definitions.

Nothing here is fast or clever; it imports torch alone, so that an oracle cannot share a bug with the library.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Row:
    """One example with only its valid tokens, in order."""

    index: int  # in the batch
    x: Tensor  # [T D] the queries' tokens
    context: Tensor  # [S D] the keys' tokens: x itself without a context
    is_cross: bool
    allowed: list[
        list[list[bool]]
    ]  # [H T S] by causal, pairwise; the mechanism's own pattern comes on top
    is_global: list[bool]  # [S]

    @property
    def T(self) -> int:
        return self.x.shape[0]

    @property
    def S(self) -> int:
        return self.context.shape[0]


def run(
    mix_row: Callable[[Row], tuple[Tensor, Tensor | None]],
    x: Tensor,
    *,
    num_heads: int = 1,
    context: Tensor | None = None,
    causal: bool = False,
    valid: Tensor | None = None,
    pairwise: Tensor | None = None,
    global_tokens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Apply `mix_row(row) -> (y [T D], weights [H T S] | None)` to every example, and put the results in place.

    Outputs of absent tokens, and of queries that may see nothing at all, are zero.
    """
    source = x if context is None else context
    B, S, T = source.shape[0], source.shape[1], x.shape[1]
    outputs, maps = [], []
    for b in range(B):
        keys = [j for j in range(S) if valid is None or bool(valid[b, j])]
        queries = keys if context is None else list(range(T))
        heads = num_heads if pairwise is None else max(num_heads, pairwise.shape[1])

        def pair(h: int, i: int, j: int, b: int = b) -> bool:
            if pairwise is None:
                return True
            return bool(pairwise[b % pairwise.shape[0], h % pairwise.shape[1], i, j])

        allowed = [
            [
                [
                    (not causal or place_j <= place_i + len(keys) - len(queries)) and pair(h, i, j)
                    for place_j, j in enumerate(keys)
                ]
                for place_i, i in enumerate(queries)
            ]
            for h in range(heads)
        ]
        is_global = [global_tokens is not None and bool(global_tokens[b, j]) for j in keys]
        row = Row(b, x[b, queries], source[b, keys], context is not None, allowed, is_global)
        y, weights = x.new_zeros(T, x.shape[-1]), None
        if queries and keys:
            mixed, mixed_weights = mix_row(row)
            sees = [any(any(head[i]) for head in allowed) for i in range(len(queries))]
            keep = torch.tensor(sees, device=x.device)[:, None]
            mixed = torch.where(keep, mixed, torch.zeros_like(mixed))
            y = y.index_copy(0, torch.tensor(queries, device=x.device), mixed)
            if mixed_weights is not None:
                external = mixed_weights.shape[2] - len(keys)  # learned keys come first
                weights = x.new_zeros(mixed_weights.shape[0], T, external + S)
                for i, query in enumerate(queries):
                    for e in range(external):
                        weights[:, query, e] = mixed_weights[:, i, e].detach() * bool(sees[i])
                    for j, key in enumerate(keys):
                        weights[:, query, external + key] = mixed_weights[
                            :, i, external + j
                        ].detach()
        outputs.append(y)
        maps.append(weights)
    known = next((w for w in maps if w is not None), None)
    weights = (
        None
        if known is None
        else torch.stack([torch.zeros_like(known) if w is None else w for w in maps])
    )
    return torch.stack(outputs), weights


def linear(params: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    """x W^T + b with `name.weight` and, where it exists, `name.bias`."""
    y = x @ params[f"{name}.weight"].T
    bias = params.get(f"{name}.bias")
    return y if bias is None else y + bias


def softmax(scores: list[Tensor | None]) -> list[Tensor | None]:
    """Softmax over the entries that are not None."""
    present = [s for s in scores if s is not None]
    if not present:
        return scores
    top = torch.stack(present).max().detach()
    total = sum((s - top).exp() for s in present)
    return [None if s is None else (s - top).exp() / total for s in scores]


def softmax_of_all(scores: Iterable[Tensor]) -> list[Tensor]:
    """Softmax where every entry takes part."""
    return [weight for weight in softmax(list(scores)) if weight is not None]
