"""Where the time of a pass goes: python benchmarks/spent.py [--only rfa linear] [--lengths 4096] [--json]

Our side of `pairs.py`, float32. By PyTorch's profiler, in the fastest call: products (matrix products and fused attention), passes (one
operation for each number) and moved (copies, gathers, sorts, fills). the rest: the time without the profiler less these three, which is
calls, views, Python and the engine of autograd. Where the three alone take what a target allows, only fewer operators could meet it, not
faster calls. KINETO_LOG_LEVEL=5 in the environment keeps the profiler quiet.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from measuring import Json, medians, run, show
from ours import calling
from pairs import Case, Pair, Pass, feasible
from torch.profiler import ProfilerActivity, profile

PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot"}
FUSED = "_scaled_dot_product"
MOVED = {
    *("copy", "cat", "stack", "fill", "zero", "clone", "constant_pad_nd", "roll", "flip"),
    *("index", "index_select", "index_put", "index_add", "index_copy", "gather", "scatter"),
    *("scatter_add", "sort", "topk", "embedding", "embedding_dense_backward", "tril", "triu"),
}
NOTHING = {  # no number is read or written
    *("view", "_unsafe_view", "reshape", "_reshape_alias", "as_strided", "slice", "select"),
    *("narrow", "transpose", "t", "permute", "expand", "expand_as", "squeeze", "unsqueeze"),
    *("flatten", "unflatten", "unbind", "split", "split_with_sizes", "chunk", "detach", "alias"),
    *("to", "_to_copy", "empty", "empty_like", "empty_strided", "new_empty", "resize", "matmul"),
    *("linear", "einsum", "contiguous", "item", "_local_scalar_dense", "is_nonzero", "lift_fresh"),
    *("set", "scaled_dot_product_attention", "result_type", "view_as", "movedim", "swapaxes", "mT"),
}


def main(
    only: tuple[str, ...] = (),
    lengths: tuple[int, ...] = (1024, 4096, 16384),
    passes: tuple[Pass, ...] = ("forward", "train"),
    rounds: int = 5,
    json_: Json = False,
) -> int:
    """Take a pass apart by kind of operator.

    Args:
        only: names of mechanisms; all of `pairs.py` by default
        lengths: tokens
        passes: a forward pass, a forward and backward pass
        rounds: calls with the profiler, and without
        json_: print data instead of a table
    """
    rows = [
        _row(pair, kind, length, rounds)
        for length in lengths
        for pair, kind in feasible(only, passes, length)
    ]
    return show(rows, as_json=json_)


def _row(pair: Pair, kind: Pass, length: int, rounds: int) -> dict[str, Any]:
    call = calling(pair, Case(length=length, causal=pair.causal), kind)
    whole = medians({"pass": call}, rounds)["pass"]
    spent = min((_spent(call) for _ in range(rounds)), key=Counter.total)
    return {
        "tokens": length,
        "pair": pair.name,
        "pass": kind,
        "ms": whole,
        **{f"{name} ms": spent[name] for name in ("products", "passes", "moved")},
        "the rest ms": max(0.0, whole - spent.total()),
    }


def _spent(call: Callable[[], None]) -> Counter[str]:
    """Milliseconds of one call, by kind of operator."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        call()
    found = Counter[str]()
    for event in profiler.key_averages():
        kind = _kind(event.key)
        if kind is not None:
            found[kind] += 1e-3 * event.self_cpu_time_total
    return found


def _kind(name: str) -> str | None:
    namespace, _, operator = name.partition("::")
    operator = operator.removesuffix("_")
    if namespace != "aten" or operator in NOTHING:
        return None
    if operator in PRODUCTS or operator.startswith(FUSED):
        return "products"
    return "moved" if operator in MOVED else "passes"


if __name__ == "__main__":
    run(main)
