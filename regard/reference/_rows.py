"""Shared parts of the oracles: one row of the batch at a time, invalid tokens removed, allowed pairs by the definitions.

Nothing here is fast or clever; it imports torch alone, so that an oracle cannot share a bug with the library.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import WRAPPER_ASSIGNMENTS

import torch
from torch import Tensor

Params = dict[str, Tensor]


@dataclass
class Row:
    """One example with only its valid tokens, in order."""

    index: int  # in the batch
    x: Tensor  # [T D] the queries' tokens
    context: Tensor  # [S D] the keys' tokens: x itself without a context
    is_cross: bool
    causal: bool
    allowed: list[
        list[list[bool]]
    ]  # [H T S] by causal, pairwise; the mechanism's own pattern comes on top
    is_global: list[bool]  # [S]
    plan: dict[str, Tensor] | None  # random or data-dependent structure, for the whole batch

    @property
    def T(self) -> int:
        return self.x.shape[0]

    @property
    def S(self) -> int:
        return self.context.shape[0]

    def keys(self, h: int, i: int) -> list[int]:
        """The keys that query i of head h may see."""
        return [j for j in range(self.S) if self.allowed[h][i][j]]


def oracle(mix_row: Callable) -> Callable:
    """`mix_row(params, options, row) -> (y [T D], weights [H T S] | None)` as an oracle of whole requests."""

    def whole(
        params,
        options,
        x,
        *,
        context=None,
        causal=False,
        valid=None,
        pairwise=None,
        global_tokens=None,
        plan=None,
    ):
        masks = causal, valid, pairwise, global_tokens
        H = options.get("num_heads") or 1
        return _run(lambda row: mix_row(params, options, row), x, H, context, *masks, plan)

    for name in WRAPPER_ASSIGNMENTS:  # but not __wrapped__: the signature is that of whole requests
        setattr(whole, name, getattr(mix_row, name))
    return whole


def _run(
    mix_row: Callable[[Row], tuple[Tensor, Tensor | None]],
    x: Tensor,
    num_heads: int,
    context: Tensor | None,
    causal: bool,
    valid: Tensor | None,
    pairwise: Tensor | None,
    global_tokens: Tensor | None,
    plan: dict[str, Tensor] | None,
) -> tuple[Tensor, Tensor | None]:
    """Outputs of absent tokens, and of queries that may see nothing at all, are zero."""
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
        y, weights = x.new_zeros(T, x.shape[-1]), None
        if queries and keys:
            tokens, is_cross = (x[b, queries], source[b, keys]), context is not None
            mixed, mixed_weights = mix_row(
                Row(b, *tokens, is_cross, causal, allowed, is_global, plan)
            )
            sees = [any(any(head[i]) for head in allowed) for i in range(len(queries))]
            keep = torch.tensor(sees, device=x.device)[:, None]
            mixed = torch.where(keep, mixed, torch.zeros_like(mixed))
            y = y.index_copy(0, torch.tensor(queries, device=x.device), mixed)
            if mixed_weights is not None:
                external = mixed_weights.shape[2] - len(keys)  # learned keys come first
                weights = x.new_zeros(mixed_weights.shape[0], T, external + S)
                for i, query in enumerate(queries):
                    for e in range(external):
                        weights[:, query, e] = mixed_weights[:, i, e] * bool(sees[i])
                    for j, key in enumerate(keys):
                        weights[:, query, external + key] = mixed_weights[:, i, external + j]
        outputs.append(y)
        maps.append(weights)
    known = next((w for w in maps if w is not None), None)
    if known is None:
        return torch.stack(outputs), None
    zeros = torch.zeros_like(known)
    return torch.stack(outputs), torch.stack([zeros if w is None else w for w in maps])


def linear(params: Params, name: str, x: Tensor) -> Tensor:
    """x W^T + b with `name.weight` and, where it exists, `name.bias`."""
    y = x @ params[f"{name}.weight"].T
    bias = params.get(f"{name}.bias")
    return y if bias is None else y + bias


def heads(params: Params, row: Row, H: int) -> tuple[Tensor, Tensor, Tensor]:
    """q [T H K], k and v [S H K] by the projections heads.query, heads.key, heads.value; head h has the keys of its group."""
    q = linear(params, "heads.query", row.x).reshape(row.T, H, -1)
    k, v = (
        of_groups(linear(params, f"heads.{name}", row.context), H, q.shape[2])
        for name in ("key", "value")
    )
    return q, k, v


def of_groups(z: Tensor, H: int, K: int) -> Tensor:
    """z [S G*K] -> [S H K]: head h reads those of its group."""
    z = z.reshape(len(z), -1, K)
    return torch.stack([z[:, h * z.shape[1] // H] for h in range(H)], 1)


def mix(
    row: Row, H: int, v: Tensor, weigh: Callable[[int, int], dict[int, Tensor]]
) -> tuple[Tensor, Tensor]:
    """y_i = concat_h sum_j w_j v_jh with {j: w_j} = weigh(h, i) -> (y [T H*V], weights [H T S]); v is [S G V]."""
    S, G, V = v.shape
    weights = row.x.new_zeros(H, row.T, S)
    mixed = []
    for i in range(row.T):
        parts = []
        for h in range(H):
            found = weigh(h, i)
            if not found:
                parts.append(row.x.new_zeros(V))
                continue
            seen, w = list(found), torch.stack(list(found.values()))
            weights[h, i, seen] = w.detach()
            parts.append(w @ v[seen, h * G // H])
        mixed.append(torch.cat(parts))
    return torch.stack(mixed), weights


def softmax(scores: dict[int, Tensor]) -> dict[int, Tensor]:
    """Over the keys; where scores are vectors, in each channel."""
    if not scores:
        return {}
    values = torch.stack(list(scores.values()))
    e = (values - values.max().detach()).exp()
    return dict(zip(scores, e / e.sum(0), strict=True))


def softmax_of_all(scores: Iterable[Tensor]) -> list[Tensor]:
    """The softmax of a list."""
    return list(softmax(dict(enumerate(scores))).values())
