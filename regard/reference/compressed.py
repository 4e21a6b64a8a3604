"""Oracle of `compressed` (arXiv 1801.10198): explicit taps, and for every query the list of slots that it may see."""

import torch
from torch import Tensor

from regard.reference._rows import Row, linear, run, softmax_of_all


def compressed(
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
    """-> (y [B T D], None); global tokens change nothing where all see all."""
    H, s, first_slot = options["num_heads"], options["factor"], options["first_slot"]
    D = x.shape[-1]
    K = D // H

    def slot(name: str, tokens: list[Tensor]) -> Tensor:
        """[D] from at most s tokens [D]; the missing ones are zeros."""
        weight, bias = params[f"{name}.weight"], params[f"{name}.bias"]
        channels = []
        for out in range(D):
            width = weight.shape[1]  # channels of one group
            group = out // width
            total = bias[out]
            for t, token in enumerate(tokens):
                total = total + weight[out, :, t] @ token[group * width : (group + 1) * width]
            channels.append(total)
        return torch.stack(channels)

    def mix_row(row: Row) -> tuple[Tensor, None]:
        q = linear(params, "heads.query", row.x).reshape(row.T, H, K)
        k = linear(params, "heads.key", row.context)
        v = linear(params, "heads.value", row.context)
        of_values = "key_conv" if options["share_conv"] else "value_conv"
        groups = [list(range(c, min(c + s, row.S))) for c in range(0, row.S, s)]
        slots = [
            (
                slot("key_conv", [k[j] for j in group]).reshape(H, K),
                slot(of_values, [v[j] for j in group]).reshape(H, K),
            )
            for group in groups
        ]
        mixed = []
        for i in range(row.T):
            here = i + row.S - row.T  # the last token that a causal query sees
            if not causal:
                seen = slots
            elif first_slot == "token0":
                seen = [(k[0].reshape(H, K), v[0].reshape(H, K))]
                seen += [slots[c] for c in range(len(slots)) if s * c + s <= here]
            else:
                seen = [slots[c] for c in range(len(slots)) if s * c + s - 1 <= here]
                if first_slot == "null":
                    seen = [(params["null"][0, :, 0], params["null"][1, :, 0]), *seen]
            heads = []
            for h in range(H):
                weights = softmax_of_all(q[i, h] @ key[h] * K**-0.5 for key, _ in seen)
                pairs = zip(weights, seen, strict=True)
                heads.append(sum((w * value[h] for w, (_, value) in pairs), x.new_zeros(K)))
            mixed.append(torch.cat(heads))
        return linear(params, "heads.out", torch.stack(mixed)), None

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
