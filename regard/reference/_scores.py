"""Scores of one query with one key, from their formulas; shared by the oracles that take any score."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from regard.reference._rows import Numbers, Params, part


def scores(name: str, params: Params, h: int, q: Tensor, k: Tensor, keys: list[int]) -> Numbers:
    """{j: score of q [K] with the key at position j} in head h; k [n K] are the keys at these positions; parameters are called score.*"""
    own = {key: p[h] for key, p in part(params, "score.").items()}
    return dict(zip(keys, FORMULAS[name](own, q, k, keys), strict=True))


def _activation_unit(p: Params, q: Tensor, k: Tensor, keys: list[int]) -> Tensor:
    """MLP([k ; interaction ; q]), PReLU, or sigmoid without slopes; the first layer's width tells the interaction."""
    weights = [p[name] for name in sorted(p) if name.startswith("weights.")]
    K = len(q)
    q = q.expand_as(k)
    inputs = {
        K * (K + 2): [k, (k[:, :, None] * q[:, None]).flatten(1), q],
        3 * K: [k, k * q, q],
        2 * K: [k, q],
        4 * K: [q, k, q - k, q * k],
    }
    x = torch.cat(inputs[weights[0].shape[1]], -1)
    for i, weight in enumerate(weights):
        x = x @ weight.T + p[f"biases.{i}"]
        if i + 1 < len(weights):
            slope = p.get(f"slopes.{i}")
            x = x.sigmoid() if slope is None else torch.where(x > 0, x, slope * x)
    return x[:, 0]


FORMULAS = {
    "dot": lambda p, q, k, keys: k @ q,
    "scaled_dot": lambda p, q, k, keys: k @ q / len(q) ** 0.5,
    "general": lambda p, q, k, keys: k @ (q @ p["weight"]),
    "additive": lambda p, q, k, keys: (
        torch.tanh(p["query"] @ q + k @ p["key"].T + p.get("bias", 0)) @ p["v"]
    ),
    "location": lambda p, q, k, keys: p["weight"][keys] @ q,
    "cosine": lambda p, q, k, keys: (
        softplus(p["raw"]) * (k @ q) / (q.norm().clamp_min(1e-6) * k.norm(dim=-1).clamp_min(1e-6))
    ),
    "activation_unit": _activation_unit,
}
"""Name in SCORES -> formula(its parameters in one head, q [K], keys k [n K], their positions) -> [n]."""
