"""Oracle of `linformer` (arXiv 2006.04768): every slot is summed over the valid tokens, then met by each query."""

import torch
from torch import Tensor

from regard.reference._rows import Row, linear, run


def linformer(
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
    """-> (y [B T D], weights [B H T S]); global tokens change nothing where all see all."""
    H = options["num_heads"]
    K = x.shape[-1] // H

    def matrices(h: int, n: int) -> tuple[Tensor, Tensor]:
        """E and F [M n]"""
        if options["projection"] == "mean":
            M = options["num_slots"] or min(128, options["max_len"])
            segments = [[j for j in range(n) if j * M // n == c] for c in range(M)]
            rows = []
            for segment in segments:
                if segment:
                    row = x.new_zeros(n)
                    row[segment] = 1 / len(segment)
                    rows.append(row)
            return torch.stack(rows), torch.stack(rows)
        E = params["project.key"]
        F = params.get("project.value", E)
        head = h if options["sharing"] == "none" else 0
        return E[head, :, :n], F[head, :, :n]

    def mix_row(row: Row) -> tuple[Tensor, Tensor]:
        q = linear(params, "heads.query", row.x).reshape(row.T, H, K)
        k = linear(params, "heads.key", row.context).reshape(row.S, H, K)
        v = linear(params, "heads.value", row.context).reshape(row.S, H, K)
        weights = x.new_zeros(H, row.T, row.S)
        heads = []
        for h in range(H):
            E, F = matrices(h, row.S)
            k_slots, v_slots = E @ k[:, h], F @ v[:, h]
            mixed = []
            for i in range(row.T):
                scores = k_slots @ q[i, h] * K**-0.5
                P = (scores - scores.max()).exp()
                P = P / P.sum()
                mixed.append(P @ v_slots)
                weights[h, i] = (P @ F).detach()
            heads.append(torch.stack(mixed))
        return linear(params, "heads.out", torch.cat(heads, dim=-1)), weights

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
