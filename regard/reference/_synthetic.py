"""Shared by the Synthesizer oracles: synthesized logits, softmax over the allowed keys, values, output projection."""

import math
from collections.abc import Callable

from torch import Tensor

from regard.reference._rows import Numbers, Params, Row, attend, linear, part, softmax


def dense_logits(p, options, row: Row, h: int, i: int) -> Tensor:
    """W_2 relu(W_1 x_i + b_1) + b_2, first T entries; W_2 x_i + b_2 without W_1"""
    hidden = _hidden(p, row, h, i) if "hidden.weight" in p else row.x[i]
    g = h % len(p["weight"])
    return p["weight"][g, : row.T] @ hidden + p["bias"][g, : row.T]


def random_logits(p, options, row: Row, h: int, i: int) -> Tensor:
    """R_ij"""
    return p["table"][h, i, : row.T]


def factorized_random_logits(p, options, row: Row, h: int, i: int) -> Tensor:
    """sum_m R1_im R2_jm"""
    return p["right"][h, : row.T] @ p["left"][h, i]


def factorized_dense_logits(p, options, row: Row, h: int, i: int) -> Tensor:
    """A_ip C_iq with j = p b + q, or p = j mod a, q = j mod b"""
    a = options.get("first_factor") or math.isqrt(options["max_len"])
    b = math.ceil(options["max_len"] / a)
    both = p["weight"][h, : a + b] @ _hidden(p, row, h, i) + p["bias"][h, : a + b]
    outer = options.get("tiling", "outer") == "outer"
    left = [j // b if outer else j % a for j in range(row.T)]
    right = [a + j % b for j in range(row.T)]
    return both[left] * both[right]


def _hidden(p, row: Row, h: int, i: int) -> Tensor:
    w, b = p["hidden.weight"], p["hidden.bias"]
    F = len(w) // row.H
    return (w[h * F : (h + 1) * F] @ row.x[i] + b[h * F : (h + 1) * F]).clamp_min(0)


LOGITS = {
    "synthesizer_dense": dense_logits,
    "synthesizer_random": random_logits,
    "synthesizer_factorized_dense": factorized_dense_logits,
    "synthesizer_factorized_random": factorized_random_logits,
}


def synthetic(
    logits: Callable[[Params, dict, Row, int, int], Tensor], params: Params, options: dict, row: Row
) -> tuple[Tensor, Tensor]:
    """`logits(p, options, row, h, i)` [T]: the numbers of query i before the softmax, p the parameters of the logits."""
    p = part(params, "logits.")
    v = linear(params, "values.value", row.x)

    def weigh(h: int, i: int) -> Numbers:
        keys = row.keys(h, i)
        return softmax(dict(zip(keys, logits(p, options, row, h, i)[keys], strict=True)))

    return attend(params, row, v.reshape(row.T, row.H, -1), weigh, "values.out")
