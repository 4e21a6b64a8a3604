"""Oracle of `head_groups`: each group by its mechanism's own oracle, with its rows of the projections and no output's."""

import torch

import regard.reference as oracles
from regard.reference._rows import linear, part


def head_groups(params, options, x, *, pairwise=None, plan=None, **request):
    """-> (y [B T D], weights [B H T S] | None)"""
    D = x.shape[-1]
    mixed = []
    maps = []
    first = 0
    K = D // options["num_heads"]
    for i, group in enumerate(options["groups"]):
        count = group.num_heads
        name = group.mixer if isinstance(group.mixer, str) else group.mixer.name
        own = part(params, f"groups.{i}.")
        rows = slice(first * K, (first + count) * K)
        for side in ("query", "key", "value"):
            own[f"heads.{side}.weight"] = params[f"heads.{side}.weight"][rows]
        own["heads.out.weight"] = torch.eye(D, count * K).to(x)  # its heads as they are, then zeros
        given = {**group.options, "num_heads": count}
        request["plan"] = part(plan or {}, f"{i}.")
        request["pairwise"] = pairwise
        if pairwise is not None and pairwise.shape[1] > 1:
            request["pairwise"] = pairwise[:, first : first + count]
        y, weights = getattr(oracles, name)(own, given, x, **request)
        mixed.append(y[..., : count * K])
        maps.append(weights)
        first += count
    weights = None if any(one is None for one in maps) else torch.cat(maps, 1)
    return linear(params, "heads.out", torch.cat(mixed, -1)), weights
