"""Oracle of `transformer_xl` (arXiv 1901.02860): a double loop with the sinusoid of every single distance.

plan: the segments of queries [B T] and keys [B S] where they were passed to the mixer's `relate` (arXiv 1906.08237).
"""

import torch
from torch import Tensor

from regard.reference._rows import attend, heads, linear, oracle, softmax


@oracle
def transformer_xl(params, options, row):
    """-> (y [B T D], weights [B H T S]); the last query is aligned to the last key."""
    D, clamp = row.x.shape[-1], options["clamp_len"]
    u, v_b = params["position.u"], params["position.v"]

    def r(distance: int) -> Tensor:
        """[H K]"""
        if clamp is not None:
            distance = max(-clamp, min(clamp, distance))
        angles = row.x.new_tensor([distance * 10000 ** (-2 * c / D) for c in range(D // 2)])
        R = torch.cat([angles.sin(), angles.cos()])
        return linear(params, "position.distance", R).reshape(row.H, -1)

    q, k, v = heads(params, row)
    r_of = {d: r(d) for d in range(1 - row.T, row.S)}

    def weigh(h, i):
        scores, tokens, query = {}, k[:, h].unbind(), q[i, h]
        of_content = query + u[h]
        of_distance = query + v_b[h]
        for j in row.keys(h, i):
            distance = i + row.S - row.T - j
            if options["same_length"] and distance >= options["mem_len"]:
                continue
            score = of_content @ tokens[j] + of_distance @ r_of[distance][h]
            if row.plan:
                two = row.plan["query"][row.index][i] != row.plan["key"][row.index][j]
                score = score + (query + params["segment.b"][h]) @ params["segment.s"][int(two), h]
            scores[j] = score * q.shape[2] ** -0.5
        return softmax(scores)

    return attend(params, row, v, weigh)
