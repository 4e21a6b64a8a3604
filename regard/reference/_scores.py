"""Scores of one query with one key, from their formulas; shared by the oracles that take any score."""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.reference._rows import Params


def score(name: str, params: Params, h: int, q: Tensor, k: Tensor, j: int) -> Tensor:
    """score of q [K] with k [K], the key at position j, in head h; parameters are called score.*"""
    if name not in FORMULAS:
        raise ValueError(f"no formula for score {name!r}")
    own = {
        key.removeprefix("score."): p[h] for key, p in params.items() if key.startswith("score.")
    }
    return FORMULAS[name](own, q, k, j)


def _additive(p: Params, q: Tensor, k: Tensor, j: int) -> Tensor:
    return p["v"] @ torch.tanh(p["query"] @ q + p["key"] @ k + p.get("bias", 0))


def _cosine(p: Params, q: Tensor, k: Tensor, j: int) -> Tensor:
    beta = (1 + p["raw"].exp()).log()
    return beta * (q @ k) / (q.norm().clamp_min(1e-6) * k.norm().clamp_min(1e-6))


def _activation_unit(p: Params, q: Tensor, k: Tensor, j: int) -> Tensor:
    """MLP([k ; interaction ; q]), PReLU, or sigmoid without slopes; the first layer's width tells the interaction."""
    weights = [p[name] for name in sorted(p) if name.startswith("weights.")]
    inputs = {
        len(q) * (len(q) + 2): [k, torch.outer(k, q).reshape(-1), q],
        3 * len(q): [k, k * q, q],
        2 * len(q): [k, q],
        4 * len(q): [q, k, q - k, q * k],
    }
    x = torch.cat(inputs[weights[0].shape[1]])
    for i, weight in enumerate(weights):
        x = weight @ x + p[f"biases.{i}"]
        if i + 1 < len(weights):
            slope = p.get(f"slopes.{i}")
            x = 1 / (1 + (-x).exp()) if slope is None else torch.where(x > 0, x, slope * x)
    return x[0]


FORMULAS: dict[str, Callable[[Params, Tensor, Tensor, int], Tensor]] = {
    "dot": lambda p, q, k, j: q @ k,
    "scaled_dot": lambda p, q, k, j: q @ k / len(q) ** 0.5,
    "general": lambda p, q, k, j: q @ p["weight"] @ k,
    "additive": _additive,
    "location": lambda p, q, k, j: p["weight"][j] @ q,
    "cosine": _cosine,
    "activation_unit": _activation_unit,
}
"""Name in SCORES -> formula(its parameters in one head, q [K], k [K], position of the key)."""
