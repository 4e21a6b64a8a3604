"""Oracle of `compressed` (arXiv 1801.10198): explicit taps, and for every query the list of slots that it may see."""

import torch
from torch import Tensor

from regard.reference._rows import heads, linear, oracle, softmax


@oracle
def compressed(params, options, row):
    """-> (y [B T D], None); global tokens change nothing where all see all."""
    s = options["factor"]
    first_slot = options["first_slot"]
    late = first_slot == "token0"  # slots appear one token after they are complete
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
    groups = [range(row.S)[c : c + s] for c in range(0, row.S, s)]
    slots = [
        (slot("key_conv", [k[j] for j in group]), slot(of_values, [v[j] for j in group]))
        for group in groups
    ]
    mixed = []
    for i in range(row.T):
        here = i + row.S - row.T  # the last token that a causal query sees
        seen = slots
        if row.causal:
            seen = [slot for c, slot in enumerate(slots) if s * c + s - 1 + late <= here]
            if late:
                seen.insert(0, (k[0], v[0]))
            elif first_slot == "null":
                seen.insert(0, params["null"][:, :, 0].unbind())
        for h in range(row.H):
            query = q[i, h] / q.shape[2] ** 0.5
            weights = softmax({c: query @ key[h] for c, (key, _) in enumerate(seen)})
            mixed.append(sum((w * seen[c][1][h] for c, w in weights.items()), 0 * q[i, h]))
    return linear(params, "heads.out", torch.stack(mixed).reshape(row.T, -1)), None
