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
    raise ValueError(f"no formula for score {name!r}")
