"""Oracle of `compressed` (arXiv 1801.10198): explicit taps, and for every query the list of slots that it may see."""

import torch
from torch import Tensor

from regard.reference._rows import heads, linear, oracle, softmax


@oracle
def compressed(params, options, row):
    """-> (y [B T D], None); global tokens change nothing where all see all."""
    s = options["factor"]
    first_slot = options["first_slot"]
    q, k, v = heads(params, row)

    def slot(name: str, tokens: list[Tensor]) -> Tensor:
        """[H K] from at most s tokens [H K]; the missing ones are zeros."""
        weight = params[f"{name}.weight"]
        bias = params[f"{name}.bias"]
        z, width = torch.stack(tokens).flatten(1).T, weight.shape[1]  # channels of one group
        channels = []
        for out, taps in enumerate(weight[:, :, : len(tokens)]):
            first = out // width * width  # channel of the group
            channels.append(bias[out] + (taps * z[first : first + width]).sum())
        return torch.stack(channels).reshape(row.H, -1)

    of_values = "key_conv" if options["share_conv"] else "value_conv"
    groups = [list(range(c, min(c + s, row.S))) for c in range(0, row.S, s)]
    slots = [
        (slot("key_conv", [k[j] for j in group]), slot(of_values, [v[j] for j in group]))
        for group in groups
    ]
    mixed = []
    for i in range(row.T):
        here = i + row.S - row.T  # the last token that a causal query sees
        if not row.causal:
            seen = slots
        elif first_slot == "token0":
            seen = [(k[0], v[0])]
            seen += [slots[c] for c in range(len(slots)) if s * c + s <= here]
        else:
            seen = [slots[c] for c in range(len(slots)) if s * c + s - 1 <= here]
            if first_slot == "null":
                seen = [(params["null"][0, :, 0], params["null"][1, :, 0]), *seen]
        for h in range(row.H):
            scores = {c: q[i, h] @ key[h] / q.shape[2] ** 0.5 for c, (key, _) in enumerate(seen)}
            weights = softmax(scores)
            mixed.append(sum((w * seen[c][1][h] for c, w in weights.items()), 0 * q[i, h]))
    return linear(params, "heads.out", torch.stack(mixed).reshape(row.T, -1)), None
