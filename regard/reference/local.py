"""Oracle of `local` (arXiv 1802.05751): softmax over the tokens at most window_size dilated steps away."""

from regard.reference._patterned import attend_over


def local(
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
    """-> (y [B T D], weights [B H T T])"""
    w, dilation = options["window_size"], options["dilation"]

    def pairs(row, h, i, j):
        return any(j == i + step * dilation for step in range(-w, w + 1))

    return attend_over(
        pairs,
        params,
        options["num_heads"],
        x,
        rotary=options["position_options"] or {} if options["position"] == "rotary" else None,
        causal=causal,
        valid=valid,
        pairwise=pairwise,
        global_tokens=global_tokens,
    )
