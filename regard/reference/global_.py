"""Oracle of `global` (arXiv 2004.08483): oneself, the global tokens, and learned tokens before the sequence."""

from regard.reference._patterned import attend_over


def global_(
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
    """-> (y [B T D], weights [B H T E+T], external tokens first)"""
    first = options["num_global"]

    def pairs(row, h, i, j):
        return i == j or i < first or j < first

    masks = dict(causal=causal, valid=valid, pairwise=pairwise, global_tokens=global_tokens)
    return attend_over(
        pairs, params, options["num_heads"], x, external=params.get("external"), **masks
    )
