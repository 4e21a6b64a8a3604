"""Oracle of `mixture` (arXiv 2005.00743): the members' logits one by one, blended before the softmax."""

import torch
from torch import Tensor

from regard.reference._rows import linear, oracle, part
from regard.reference._scores import scores
from regard.reference._synthetic import LOGITS, synthetic
from regard.reference.fixed_patterns import weight


@oracle
def mixture(params, options, row):
    """-> (y [B T D], weights [B H T T]); global tokens change nothing where all see all."""
    names = list(options["members"])
    members = {name: part(params, f"logits.members.{name}.") for name in names}
    projected = {}  # queries and keys by member

    def of_member(name: str, h: int, i: int) -> Tensor:
        p = members[name]
        if name in LOGITS:
            return LOGITS[name](p, options, row, h, i)
        if name == "fixed_patterns":
            pattern = ("current", "previous", "left")[h % 3]
            raw = [float(weight(pattern, i, j, row.T)) for j in range(row.T)]
            return torch.stack([row.x.new_tensor(r / sum(raw) + 2**-10).log() for r in raw])
        if name not in projected:
            both = (linear(p, side, row.x) for side in ("query", "key"))
            projected[name] = [z.reshape(row.T, row.H, -1) for z in both]
        q, k = projected[name]
        kind = "scaled_dot" if name == "softmax" else name
        found = scores(kind, p, h, q[i, h], k[:, h], list(range(row.T)))
        return torch.stack(list(found.values()))

    def logits(_, options, row, h: int, i: int) -> Tensor:
        shares = params["logits.blend"][:, h].exp()
        shares = shares / shares.sum()
        return sum(shares[m] * of_member(name, h, i) for m, name in enumerate(names))

    return synthetic(logits, params, options, row)
