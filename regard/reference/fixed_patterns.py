"""Oracle of `fixed_patterns` (arXiv 2002.10260): explicit weight of every pair of positions."""

from regard.reference._rows import attend, linear, oracle, products, softmax


def weight(pattern: str, i: int, j: int, n: int) -> float:
    """Unnormalised weight of key j for query i among n tokens."""
    return {
        "current": j == i,
        "previous": j == max(i - 1, 0),
        "next": j == min(i + 1, n - 1),
        "left": (j + 1) ** 3 * (j <= i - 2) if i >= 2 else j == 0,
        "right": (n - j) ** 3 * (j >= i + 2) if i <= n - 3 else j == n - 1,
        "end": (j + 1) ** 3,
        "start": (n - j) ** 3,
        "last": j == n - 1,
    }[pattern]


@oracle
def fixed_patterns(params, options, row):
    """-> (y [B T D], weights [B H T T])"""
    H = row.H
    T = row.T
    patterns = options["patterns"]
    K = row.x.shape[-1] // H
    if patterns is None:
        patterns = ("current", "previous", "next", "left", "right", "end", "start")[: H - 1]
    F = len(patterns)
    v = linear(params, "values.value", row.x).reshape(T, H, K)
    if F < H:
        q, k = (linear(params, name, row.x).reshape(T, H - F, K) for name in ("query", "key"))

    def weigh(h, i):
        keys = row.keys(h, i)
        if h >= F:
            return softmax(products(q, k, h - F, i, keys))
        raw = {j: float(weight(patterns[h], i, j, T)) for j in keys}
        total = sum(raw.values()) or 1.0
        return {j: row.x.new_tensor(raw[j] / total) for j in keys}

    return attend(params, row, v, weigh, "values.out")
