"""Oracle of `routing` (arXiv 2003.05997): clusters from given memberships, one cluster and one query at a time."""

import torch
from torch import Tensor

from regard.reference._rows import Row, linear, run


def routing(
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
    """-> (y [B T D], weights [B H T S]); the plan's memberships speak of the tokens that are present.

    Itself: query_members, key_members [B H N W], or, causal, clusters [B H T]. With a context: query_clusters [B H T]
    and key_members, or, causal, key_clusters [B H S].
    """
    H, W = options["num_heads"], options["window_size"]
    K = x.shape[-1] // H
    if W is None:
        clusters = options["num_clusters"] or max(1, round(options["max_len"] ** 0.5 / 2))
        W = -(-options["max_len"] // clusters)
    scale = K**-0.5 if options["scale"] is None else options["scale"]

    def normed(z: Tensor) -> Tensor:
        centred = z - z.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()

    def clusters_of(row: Row, here: dict[str, list], i: int) -> list[list[int]]:
        """The keys that each cluster of the query offers, before masks; `here` is the plan of this row and head."""
        if row.is_cross and not causal:
            return [here["key_members"][here["query_clusters"][i]]]
        if row.is_cross:
            mine = here["query_clusters"][i]
            past = [j for j in range(row.S) if j <= i + row.S - row.T]
            return [[j for j in past if here["key_clusters"][j] == mine][-W:]]
        if causal:
            own = here["clusters"]
            return [[*[j for j in range(i) if own[j] == own[i]][-W:], i]]
        sides = zip(here["query_members"], here["key_members"], strict=True)
        return [keys for queries, keys in sides if i in queries]

    def mix_row(row: Row) -> tuple[Tensor, Tensor]:
        q = linear(params, "heads.query", row.x).reshape(row.T, H, K)
        k = (
            q
            if options["shared_qk"]
            else linear(params, "heads.key", row.context).reshape(row.S, H, K)
        )
        v = linear(params, "heads.value", row.context).reshape(row.S, H, K)
        if not options["attend_raw"]:
            q, k = normed(q), normed(k)
        elif options["shared_qk"]:
            k = k / k.norm(dim=-1, keepdim=True).clamp_min(1e-12)
        here = [{name: z[row.index, h].tolist() for name, z in plan.items()} for h in range(H)]
        weights = x.new_zeros(H, row.T, row.S)
        mixed = []
        for i in range(row.T):
            heads = []
            for h in range(H):
                outputs, used = [], []
                for offered in clusters_of(row, here[h], i):
                    keys = [j for j in offered if j >= 0 and row.allowed[h][i][j]]
                    if options["published_causal"]:
                        keys = [j for j in keys if j <= i]
                    if not options["allow_self"] and not row.is_cross and any(j != i for j in keys):
                        keys = [j for j in keys if j != i]
                    if keys:
                        w = (scale * k[keys, h] @ q[i, h]).softmax(0)
                        outputs.append(w @ v[keys, h])
                        used.append((keys, w.detach()))
                for keys, w in used:
                    weights[h, i, keys] += w / len(used)
                heads.append(sum(outputs) / len(outputs) if outputs else x.new_zeros(K))
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
