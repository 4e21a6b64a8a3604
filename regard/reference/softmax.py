"""Oracle of `softmax` (arXiv 1706.03762; shared-QK: arXiv 2001.04451): one head, one query, one key at a time.

Positions inside attention: rotary (arXiv 2104.09864), ALiBi (arXiv 2108.12409), T5's buckets (arXiv 1910.10683).
"""

import math
from functools import partial

from torch import Tensor

from regard.reference._rows import attend, beside_sink, heads, oracle


@oracle
def softmax(params, options, row):
    """-> (y [B T D], weights [B H T S]); global tokens change nothing where all see all."""
    shared, scale = options["shared_qk"], options["scale"]
    position = options["position"]
    of_position = options["position_options"] or {}

    def added(h: int, i: int, j: int) -> Tensor | float:
        """Bias that the position adds to the score of query i and key j."""
        if position == "alibi":
            return -slope(h, row.H) * abs(i - j)
        if position == "t5":
            return params["position.table"][bucket(i - j, **of_position), h]
        return 0.0

    q, k, v = heads(params, row, turn=options)
    if scale is None:
        scale = 1.0 if shared else q.shape[2] ** -0.5

    def weigh(h, i):
        keys = row.keys(h, i)
        if shared and any(j != i for j in keys):
            keys = [j for j in keys if j != i]
        scores = dict(zip(keys, scale * k[keys, h] @ q[i, h], strict=True))
        return beside_sink(scores, params, options, h, partial(added, h, i))

    return attend(params, row, v, weigh)


def slope(h: int, H: int) -> float:
    """ALiBi's geometric sequence; where H is no power of two, the rest are odd members of the sequence for twice as many."""
    low = 2 ** (H.bit_length() - 1)
    return 2.0 ** (-8 * (h + 1) / low) if h < low else 2.0 ** (-8 * (2 * (h - low) + 1) / (2 * low))


def bucket(
    distance: int, num_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
) -> int:
    """T5's bucket of query position - key position: exact up to half the buckets of a direction, then logarithmic."""
    first = 0
    if bidirectional:
        num_buckets //= 2
        first = num_buckets if distance < 0 else 0
        distance = abs(distance)
    distance = max(distance, 0)
    exact = num_buckets // 2
    if distance < exact:
        return first + distance
    grown = math.log(distance / exact) / math.log(max_distance / exact) * (num_buckets - exact)
    return first + min(exact + math.floor(grown + 1e-9), num_buckets - 1)
