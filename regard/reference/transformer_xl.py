"""Oracle of `transformer_xl` (arXiv 1901.02860): a double loop with the sinusoid of every single distance.

plan: the segments of queries [B T] and keys [B S] where the mixer's `relate` was told them (arXiv 1906.08237).
"""

import math

import torch
from torch import Tensor

from regard.reference._rows import Row, linear, run, softmax


def transformer_xl(
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
    """-> (y [B T D], weights [B H T S]); the last query stands at the last key."""
    H, D = options["num_heads"], x.shape[-1]
    K = D // H
    clamp = options["clamp_len"]
    u, v_b = params["position.u"], params["position.v"]
    told = plan or {}

    def r(distance: int) -> Tensor:
        """[H K]"""
        if clamp is not None:
            distance = max(-clamp, min(clamp, distance))
        angles = [distance * 10000 ** (-2 * c / D) for c in range(D // 2)]
        R = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
        return linear(params, "position.distance", x.new_tensor(R)).reshape(H, K)

    def mix_row(row: Row) -> tuple[Tensor, Tensor]:
        q = linear(params, "heads.query", row.x).reshape(row.T, H, K)
        k = linear(params, "heads.key", row.context).reshape(row.S, H, K)
        v = linear(params, "heads.value", row.context).reshape(row.S, H, K)
        weights = x.new_zeros(H, row.T, row.S)
        r_of = {d: r(d) for d in range(1 - row.T, row.S)}
        mixed = []
        for i in range(row.T):
            heads = []
            for h in range(H):
                scores: list[Tensor | None] = []
                for j in range(row.S):
                    distance = i + row.S - row.T - j
                    seen = row.allowed[h][i][j]
                    if options["same_length"]:
                        seen = seen and distance < options["mem_len"]
                    score = (q[i, h] + u[h]) @ k[j, h] + (q[i, h] + v_b[h]) @ r_of[distance][h]
                    if told:
                        two = told["query"][row.index][i] != told["key"][row.index][j]
                        score = (
                            score
                            + (q[i, h] + params["segment.b"][h]) @ params["segment.s"][int(two), h]
                        )
                    scores.append(score * K**-0.5 if seen else None)
                y = x.new_zeros(K)
                for j, w in enumerate(softmax(scores)):
                    if w is not None:
                        weights[h, i, j] = w.detach()
                        y = y + w * v[j, h]
                heads.append(y)
            mixed.append(torch.cat(heads))
        return linear(params, "heads.out", torch.stack(mixed)), weights

    return run(
        mix_row,
        x,
        num_heads=H,
        context=context,
        causal=causal,
        valid=valid,
        pairwise=pairwise,
        global_tokens=global_tokens,
    )
