"""Scores of one query with one key, from their formulas; shared by the oracles that take any score."""

import torch
from torch import Tensor


def score(name: str, params: dict[str, Tensor], h: int, q: Tensor, k: Tensor, j: int) -> Tensor:
    """score of q [K] with k [K], the key at position j, in head h; parameters are called score.*"""
    if name == "dot":
        return q @ k
    if name == "scaled_dot":
        return q @ k / len(q) ** 0.5
    if name == "general":
        return q @ params["score.weight"][h] @ k
    if name == "additive":
        hidden = params["score.query"][h] @ q + params["score.key"][h] @ k
        if "score.bias" in params:
            hidden = hidden + params["score.bias"][h]
        return params["score.v"][h] @ torch.tanh(hidden)
    if name == "location":
        return params["score.weight"][h, j] @ q
    if name == "cosine":
        beta = (1 + params["score.raw"][h].exp()).log()
        return beta * (q @ k) / (q.norm().clamp_min(1e-6) * k.norm().clamp_min(1e-6))
    if name == "activation_unit":
        return _unit(params, h, q, k)
    raise ValueError(f"no formula for score {name!r}")


def _unit(params: dict[str, Tensor], h: int, q: Tensor, k: Tensor) -> Tensor:
    """MLP([k ; interaction ; q]) with PReLU; the width of the first layer tells the interaction."""
    weights = [params[name][h] for name in sorted(params) if name.startswith("score.weights.")]
    inputs = {
        len(q) * (len(q) + 2): [k, torch.outer(k, q).reshape(-1), q],
        3 * len(q): [k, k * q, q],
        4 * len(q): [q, k, q - k, q * k],
    }
    x = torch.cat(inputs[weights[0].shape[1]])
    for i, weight in enumerate(weights):
        x = weight @ x + params[f"score.biases.{i}"][h]
        if i + 1 < len(weights):
            x = torch.where(x > 0, x, params[f"score.slopes.{i}"][h] * x)
    return x[0]
