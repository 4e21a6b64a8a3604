"""Pools from their formulas, one set and one token at a time."""

import torch
from torch import Tensor
from torch.nn.functional import linear


def softmax(scores: list[Tensor]) -> list[Tensor]:
    exps = [s.exp() for s in scores]
    return [e / sum(exps) for e in exps]


def dice(params, name: str, s: Tensor) -> Tensor:
    z = (s - params[f"{name}.mean"]) / (params[f"{name}.variance"] + 1e-8).sqrt()
    return z.sigmoid() * s + (1 - z.sigmoid()) * params[f"{name}.alpha"] * s


def context_query(params, tokens: list[Tensor], queries) -> list[list[Tensor]]:
    W, b = params["hidden.weight"], params["hidden.bias"]
    hidden = [torch.tanh(linear(h, W, b)) for h in tokens]
    return [softmax([(u * c).sum() for u in hidden]) for c in params["context.query"]]


def attention_query_gate(params, tokens, queries):
    queries = params["context.query"] / tokens[0].shape[0] ** 0.5
    return [softmax([(x * c).sum() for x in tokens]) for c in queries]


def gate(params, tokens, queries):
    W = params["score.weight"]
    return [softmax(list(W[k] @ q)) for k, q in enumerate(queries)]


def mean(params, tokens, queries):
    return [[torch.tensor(1 / len(tokens), dtype=torch.float64)] * len(tokens)]


def unit_input(interaction: str, k: Tensor, q: Tensor) -> Tensor:
    if interaction == "outer":
        return torch.cat([k, torch.outer(k, q).flatten(), q])
    if interaction == "elementwise":
        return torch.cat([k, k * q, q])
    if interaction == "none":
        return torch.cat([k, q])
    return torch.cat([q, k, q - k, q * k])


def target_query(interaction: str, activation: str, normalise: bool):
    def weights(params, tokens, queries):
        return [of_query(params, tokens, q) for q in queries]

    def of_query(params, tokens, q):
        scores = []
        for k in tokens:
            hidden = unit_input(interaction, k, q)
            count = sum(name.startswith("score.weights") for name in params)
            for i in range(count):
                hidden = linear(hidden, params[f"score.weights.{i}"], params[f"score.biases.{i}"])
                if i + 1 < count:
                    hidden = activate(params, i, hidden)
            scores.append(hidden[0])
        return softmax(scores) if normalise else scores

    def activate(params, i, s):
        if activation == "sigmoid":
            return s.sigmoid()
        if activation == "prelu":
            return torch.where(s > 0, s, params[f"score.slopes.{i}"] * s)
        return dice(params, f"score.dices.{i}", s)

    return weights
