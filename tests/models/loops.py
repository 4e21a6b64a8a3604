"""Transformer-XL and XLNet written with loops over single pairs of tokens, one row at a time, from their papers."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Params = dict[str, Tensor]


def inside(params: Params, prefix: str) -> Params:
    return {
        name.removeprefix(prefix): value
        for name, value in params.items()
        if name.startswith(prefix)
    }


def relative_attention(
    params: Params,
    x: Tensor,
    h: Tensor,
    *,
    num_heads: int,
    place_of_query: Sequence[int],
    place_of_key: Sequence[int],
    sees: Callable[[int, int], bool],
    clamp_len: int | None = None,
    two_segments: Callable[[int, int], bool] | None = None,
) -> Tensor:
    """Queries of x [T D], keys and values of h [S D]; a query that sees nothing gives zeros."""
    T, D = x.shape
    K = D // num_heads

    def heads(name: str, rows: Tensor) -> Tensor:
        return (rows @ params[f"heads.{name}.weight"].T).reshape(-1, num_heads, K)

    def r(distance: int) -> Tensor:
        if clamp_len is not None:
            distance = max(-clamp_len, min(clamp_len, distance))
        angles = [distance * 10000 ** (-2 * c / D) for c in range(D // 2)]
        R = x.new_tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles])
        return (params["position.distance.weight"] @ R).reshape(num_heads, K)

    q, k, v = heads("query", x), heads("key", h), heads("value", h)
    u, v_b = params["position.u"], params["position.v"]
    rows = []
    for i in range(T):
        seen = [j for j in range(len(h)) if sees(i, j)]
        mixed = x.new_zeros(num_heads, K)
        for n in range(num_heads) if seen else ():
            scores = []
            for j in seen:
                far = r(place_of_query[i] - place_of_key[j])[n]
                score = q[i, n] @ k[j, n] + q[i, n] @ far + u[n] @ k[j, n] + v_b[n] @ far
                if two_segments is not None:
                    s = params["segment.s"][int(two_segments(i, j)), n]
                    score = score + q[i, n] @ s + params["segment.b"][n] @ s
                scores.append(score / math.sqrt(K))
            for j, weight in zip(seen, torch.stack(scores).softmax(0), strict=True):
                mixed[n] = mixed[n] + weight * v[j, n]
        rows.append(params["heads.out.weight"] @ mixed.flatten())
    return torch.stack(rows)


def norm(params: Params, name: str, x: Tensor) -> Tensor:
    if f"{name}.gain" in params:
        return params[f"{name}.gain"] * x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    x = x - x.mean(-1, keepdim=True)
    x = x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    return x * params[f"{name}.weight"] + params[f"{name}.bias"]


def feed_forward(params: Params, x: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
    hidden = activation(x @ params["value.weight"].T + params["value.bias"])
    return hidden @ params["out.weight"].T + params["out.bias"]


def pre_norm(
    params: Params, x: Tensor, mixed: Tensor, activation: Callable[[Tensor], Tensor]
) -> Tensor:
    x = x + mixed
    given = norm(params, "feed_forward_norm", x)
    return x + feed_forward(inside(params, "feed_forward."), given, activation)


def post_norm(
    params: Params, x: Tensor, mixed: Tensor, activation: Callable[[Tensor], Tensor]
) -> Tensor:
    y = norm(params, "mixer_norm", x + mixed)
    fed = feed_forward(inside(params, "feed_forward."), y, activation)
    return norm(params, "feed_forward_norm", y + fed)
