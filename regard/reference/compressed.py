"""Oracle of `compressed` (arXiv 1801.10198): explicit taps, and for every query the list of slots that it may see."""

import torch
from torch import Tensor

from regard.reference._rows import linear, of_groups, oracle, softmax_of_all


@oracle
def compressed(params, options, row):
    """-> (y [B T D], None); global tokens change nothing where all see all."""
    H, s, first_slot = options["num_heads"], options["factor"], options["first_slot"]
    D = row.x.shape[-1]
    K = D // H

    def slot(name: str, tokens: list[Tensor]) -> Tensor:
        """[D] from at most s tokens [D]; the missing ones are zeros."""
        weight, bias = params[f"{name}.weight"], params[f"{name}.bias"]
        width = weight.shape[1]  # channels of one group
        channels = []
        for out in range(D):
            group = out // width
            total = bias[out]
            for t, token in enumerate(tokens):
                total = total + weight[out, :, t] @ token[group * width : (group + 1) * width]
            channels.append(total)
        return torch.stack(channels).reshape(H, K)

    q = linear(params, "heads.query", row.x).reshape(row.T, H, K)
    k, v = (
        of_groups(linear(params, f"heads.{name}", row.context), H, K).flatten(1)
        for name in ("key", "value")
    )
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
            seen = [(k[0].reshape(H, K), v[0].reshape(H, K))]
            seen += [slots[c] for c in range(len(slots)) if s * c + s <= here]
        else:
            seen = [slots[c] for c in range(len(slots)) if s * c + s - 1 <= here]
            if first_slot == "null":
                seen = [(params["null"][0, :, 0], params["null"][1, :, 0]), *seen]
        parts = []
        for h in range(H):
            weights = softmax_of_all(q[i, h] @ key[h] * K**-0.5 for key, _ in seen)
            pairs = zip(weights, seen, strict=True)
            parts.append(sum((w * value[h] for w, (_, value) in pairs), row.x.new_zeros(K)))
        mixed.append(torch.cat(parts))
    return linear(params, "heads.out", torch.stack(mixed)), None
