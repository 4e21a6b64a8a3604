"""Pools from their formulas, one set and one token at a time."""

import torch
from torch import Tensor


def softmax(scores: list[Tensor]) -> list[Tensor]:
    exps = [s.exp() for s in scores]
    return [e / sum(exps) for e in exps]


def dense(weight: Tensor, x: Tensor, bias: Tensor | None = None) -> Tensor:
    rows = torch.stack([(row * x).sum() for row in weight])
    return rows if bias is None else rows + bias


def context_query(params, tokens: list[Tensor], queries) -> list[list[Tensor]]:
    W, b = params["hidden.weight"], params["hidden.bias"]
    hidden = [torch.tanh(dense(W, h, b)) for h in tokens]
    return [softmax([(u * c).sum() for u in hidden]) for c in params["context.query"]]


def attention_query_gate(params, tokens, queries):
    return [
        softmax([(x * c).sum() / len(c) ** 0.5 for x in tokens]) for c in params["context.query"]
    ]


def gate(params, tokens, queries):
    W = params["score.weight"]
    return [softmax(list(dense(W[k], q))) for k, q in enumerate(queries)]


def mean(params, tokens, queries):
    return [[torch.tensor(1 / len(tokens), dtype=torch.float64)] * len(tokens)]


def unit_input(interaction: str, k: Tensor, q: Tensor) -> Tensor:
    if interaction == "outer":
        products = [k[i] * q[j] for i in range(len(k)) for j in range(len(q))]
        return torch.cat([k, torch.stack(products), q])
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
                hidden = dense(params[f"score.weights.{i}"], hidden, params[f"score.biases.{i}"])
                if i + 1 < count:
                    hidden = activate(params, i, hidden)
            scores.append(hidden[0])
        return softmax(scores) if normalise else scores

    def activate(params, i, s):
        if activation == "sigmoid":
            return 1 / (1 + (-s).exp())
        if activation == "prelu":
            return torch.where(s > 0, s, params[f"score.slopes.{i}"] * s)
        dice = f"score.dices.{i}"
        z = (s - params[f"{dice}.mean"]) / (params[f"{dice}.variance"] + 1e-8).sqrt()
        p = 1 / (1 + (-z).exp())
        return p * s + (1 - p) * params[f"{dice}.alpha"] * s

    return weights
