"""The least time of a mechanism on this machine: its indispensable operations alone, each measured at its own shape.

Memory: inputs of a pass are read from memory once; intermediate results stay in cache; results that the caller keeps are fresh memory, others are
reused. Left out: layout, checks, calls through autograd, running sums, and gradients that tiles share, which the products that make them can add.

Softmax over tiles: one fused call for many tiles, under a mask where the plan has one, with the cheapest tile height. Its backward: five
products, one exponential and one product of two numbers for each weight, and one sum for each row; other sums and shifts of rows can be columns of the products.
What is not stored for lack of [T T] numbers is computed again in the backward.

A shorter time needs other operations than PyTorch's: a target below this one is out of reach here.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from typing import Any
from unittest import mock

import torch
from ours import build_ours, given
from pairs import Case, Pair, Pass
from torch import Tensor, nn

from regard.fast.cpu import pattern
from regard.fast.cpu.plan import plan_tiles
from regard.fast.cpu.tiles import TilePlan, positions

Call = Callable[[], object]
IN_CACHE = 1 << 18  # numbers in the largest tensor of one call
KEY = 128  # channels of queries and keys in a gated unit
PATTERNS = ("local", "strided", "global", "head_mix", "longformer", "bigbird")


@dataclass(frozen=True)
class Operation:
    """Calls of the forward and of the backward; each is repeated `times`."""

    forward: tuple[Call, ...]
    backward: tuple[Call, ...] = ()
    times: int = 1

    def run(self, kind: Pass) -> None:
        for calls in (self.forward, self.backward if kind == "train" else ()):
            for _ in range(self.times):
                for call in calls:
                    call()

    @property
    def again(self) -> "Operation":
        """The forward's calls again, in the backward, for what was not kept."""
        return Operation((), self.forward, self.times)

    def seconds(self, kind: Pass) -> float:
        self.run(kind)
        began = time.perf_counter()
        self.run(kind)
        return time.perf_counter() - began


def bound(pair: Pair, case: Case, kind: Pass) -> list[Operation] | None:
    """The cheapest operations of one pass; None where they are not written down."""
    make = BOUNDS.get(pair.mixer)
    if make is None:
        return None
    operations = list(make(pair, case, kind))
    if pair.scope == "layer":
        operations.append(_results(case.length * case.dim, case.length * case.dim))
    else:
        operations.append(_results(case.length * case.dim, 3 * case.length * case.dim))
    return operations


def _linear(tokens: int, wide: int, out: int) -> Operation:
    x, w, y = torch.randn(tokens, wide), torch.randn(wide, out), torch.empty(tokens, out)
    dx, dw = torch.empty_like(x), torch.empty_like(w)
    return Operation(
        (lambda: torch.mm(x, w, out=y),),
        (lambda: torch.mm(y, w.T, out=dx), lambda: torch.mm(x.T, y, out=dw)),
    )


@cache
def _memory(name: str, numbers: int, dtype: torch.dtype) -> Tensor:
    """Random numbers that do not fit in the cache; one tensor for each name, shared by all bounds."""
    return torch.randn(numbers, dtype=dtype)


def _blocks(name: str, times: int, *shape: int) -> Callable[[], Tensor]:
    """A function that returns the next block of a tensor in memory, again and again."""
    blocks = cycle(
        _memory(name, times * math.prod(shape), torch.get_default_dtype())
        .view(times, *shape)
        .unbind()
    )
    return lambda: next(blocks)


def _product(count: int, rows: int, inner: int, cols: int, *, far: str = "") -> Operation:
    """`count` products [rows inner] x [inner cols], as many in one call as fit in the cache.

    far: which of a, b and, in the backward, c (a b) are read from memory.
    """
    most = IN_CACHE // max(rows * inner, inner * cols, rows * cols)
    together = min(count, max(torch.get_num_threads(), most))
    times = -(-count // together)
    shapes = {"a": (rows, inner), "b": (inner, cols), "c": (rows, cols)}
    a, b, c = (
        _blocks(name, times if name in far else 1, together, *shape)
        for name, shape in shapes.items()
    )
    y, da, db = (torch.empty(together, *shapes[name]) for name in "cab")

    def backward() -> None:
        left, right, dy = a(), b(), c()
        torch.bmm(dy, right.mT, out=da)
        torch.bmm(left.mT, dy, out=db)

    return Operation((lambda: torch.bmm(a(), b(), out=y),), (backward,), times)


def _tiles(
    count: int,
    rows: int,
    keys: int,
    width: int,
    *,
    shift: int | None = None,
    masked: bool = False,
    far: bool = True,
) -> Operation:
    """Softmax attention of `count` tiles of `rows` queries and `keys` keys; keys of a tile begin `shift` after the last tile's.

    far: inputs are read from memory; else the operation before has left them in cache.
    """
    most = min(IN_CACHE // (rows * keys), IN_CACHE // (2 * rows * width))
    together = min(count, max(torch.get_num_threads(), most))
    times = -(-count // together)
    shift = rows if shift is None else shift
    places = times if far else 1
    q, y, dy = (_blocks(name, places, together, rows, width) for name in ("q", "y", "dy"))
    k, v = (_windows(name, places, together, keys, width, shift) for name in "kv")
    bias = torch.zeros(rows, keys) if masked else None
    dq, by_row = torch.empty(together, rows, width), torch.empty(together, rows)
    dk, dv = (torch.empty(together, keys, width) for _ in "kv")
    weights, d_weights = (torch.empty(together, rows, keys) for _ in range(2))
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu

    def backward() -> None:
        q_t, k_t, v_t, dy_t = q(), k(), v(), dy()
        torch.sum(torch.mul(y(), dy_t, out=dq), -1, out=by_row)
        if bias is None:
            torch.bmm(q_t, k_t.mT, out=weights)
        else:
            torch.baddbmm(bias, q_t, k_t.mT, out=weights)
        torch.exp2(weights, out=weights)
        torch.bmm(weights.mT, dy_t, out=dv)
        torch.bmm(dy_t, v_t.mT, out=d_weights)
        torch.mul(d_weights, weights, out=d_weights)
        torch.bmm(d_weights, k_t, out=dq)
        torch.bmm(d_weights.mT, q_t, out=dk)

    return Operation(
        (lambda: fused(q()[None], k()[None], v()[None], attn_mask=bias),), (backward,), times
    )


def _windows(
    name: str, places: int, together: int, keys: int, width: int, shift: int
) -> Callable[[], Tensor]:
    """Overlapping windows of one line of keys or values, for `together` tiles at a time."""
    line = _memory(name, (places * together * shift + keys) * width, torch.get_default_dtype())
    shape, strides = (together, keys, width), (shift * width, width, 1)
    step = together * shift * width
    blocks = cycle(line.as_strided(shape, strides, i * step) for i in range(places))
    return lambda: next(blocks)


def _whole(heads: int, tokens: int, keys: int, width: int) -> Operation:
    """Softmax attention in which all queries of a head see the same keys."""
    q, k, v = (torch.randn(1, heads, length, width) for length in (tokens, keys, keys))
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu

    def tiles(rows: int) -> list[Operation]:
        operation = _tiles(heads * tokens // rows, rows, keys, width, shift=0)
        return [Operation((), operation.backward, operation.times)]

    (backward,) = _cheapest(map(tiles, (64, 128, 256)), "train")
    return Operation((lambda: fused(q, k, v),), (lambda: backward.run("train"),))


def _cheapest(ways: Iterable[list[Operation]], kind: Pass) -> list[Operation]:
    return min(
        ways, key=lambda operations: sum(operation.seconds(kind) for operation in operations)
    )


def _exponentials(count: int, *, again: bool = False, far: bool = False) -> Operation:
    """again: in the backward too. far: inputs are read from memory."""
    times = -(-count // IN_CACHE)
    x, y = _blocks("x", times if far else 1, IN_CACHE), torch.empty(IN_CACHE)
    calls: tuple[Call, ...] = (lambda: torch.exp2(x(), out=y),)
    return Operation(calls, calls if again else (), times)


def _silus(count: int) -> Operation:
    """silu of what projections left in memory."""
    times = -(-count // IN_CACHE)
    x, y, dx = _blocks("x", times, IN_CACHE), torch.empty(IN_CACHE), torch.empty(IN_CACHE)
    ops = torch.ops.aten
    return Operation(
        (lambda: ops.silu.out(x(), out=y),),
        (lambda: ops.silu_backward.grad_input(y, x(), grad_input=dx),),
        times,
    )


def _products_of_numbers(forward: int, backward: int = 0) -> Iterator[Operation]:
    """One pass of products of two numbers; not in place, since repeated products would underflow, which is slow."""
    x, y, z = torch.randn(IN_CACHE), torch.randn(IN_CACHE), torch.empty(IN_CACHE)
    calls: tuple[Call, ...] = (lambda: torch.mul(x, y, out=z),)
    yield Operation(calls, times=-(-forward // IN_CACHE))
    yield Operation((), calls, times=-(-backward // IN_CACHE))


def _elu_plus_one(count: int) -> list[Operation]:
    """The cheaper of two ways: elu plus one; or the parts below and above zero computed apart."""
    times = -(-count // IN_CACHE)
    x, y, z = _blocks("x", times, IN_CACHE), torch.empty(IN_CACHE), torch.empty(IN_CACHE)

    def whole() -> None:
        torch.ops.aten.elu.out(x(), out=y)
        y.add_(1)

    def apart() -> None:
        x_t = x()
        torch.clamp(x_t, max=0, out=y)
        y.exp_()
        torch.clamp(x_t, min=0, out=z)
        y.add_(z)

    # the gradient is a product with a number between 0 and 1
    back: Call = lambda: torch.mul(y, y, out=z)  # noqa: E731
    return _cheapest([[Operation((way,), (way, back), times)] for way in (whole, apart)], "train")


def _waves(count: int) -> Operation:
    x, y = torch.randn(IN_CACHE), torch.empty(IN_CACHE)
    return Operation(
        (lambda: torch.sin(x, out=y), lambda: torch.cos(x, out=y)), times=-(-count // IN_CACHE)
    )


def _without_gradient(operation: Operation) -> Operation:
    return Operation(operation.forward, times=operation.times)


def _row_sums(count: int, rows: int, cols: int) -> Operation:
    """Sums of rows, in the forward alone: in the backward they are a column of a product."""
    together = max(torch.get_num_threads(), IN_CACHE // (rows * cols))
    x, y = torch.randn(together, rows, cols), torch.empty(together, rows)
    return Operation((lambda: torch.sum(x, -1, out=y),), times=-(-count // together))


def _rows_taken(count: int, of: int, width: int) -> Operation:
    """`count` rows gathered from a table of `of` rows in random order, and their gradients scattered back."""
    table, out, order = torch.randn(of, width), torch.empty(of, width), torch.randperm(of)
    take: Call = lambda: torch.index_select(table, 0, order, out=out)  # noqa: E731
    return Operation((take,), (take,), times=-(-count // of))


def _nearest(count: int, columns: int, *, poles: bool = False) -> Operation:
    """The index of the largest number of each row, or the smallest: `argmax` takes 20 times as long as these passes."""
    x, places = torch.randn(IN_CACHE // columns, columns), torch.arange(float(columns))
    best, last = torch.empty(2, x.shape[0], 1)
    smallest: tuple[Call, ...] = (lambda: torch.amin(x, -1, keepdim=True, out=last),)
    calls: tuple[Call, ...] = (
        lambda: torch.amax(x, -1, keepdim=True, out=best),
        *(smallest if poles else ()),
        lambda: x.eq_(best),
        lambda: x.mul_(places),
        lambda: torch.amax(x, -1, keepdim=True, out=last),
    )
    return Operation(calls, times=-(-count // x.shape[0]))


def _sums_by_cluster(count: int, clusters: int, width: int) -> Operation:
    rows = min(count, IN_CACHE // width)
    x, sums = torch.randn(rows, width), torch.zeros(clusters, width)
    place = torch.randint(0, clusters, (rows,))
    return Operation((lambda: sums.index_add_(0, place, x),), times=-(-count // rows))


def _sorted(rounds: int, tokens: int) -> Operation:
    """A stable sort of all rounds as one row of 32-bit numbers, which is the fastest that we know."""
    keys = torch.randint(0, rounds * 128, (rounds * tokens,), dtype=torch.int32)
    return Operation((lambda: torch.sort(keys, stable=True),))


def _top_k(rows: int, of: int, k: int) -> Operation:
    x = torch.randn(rows, of)
    return Operation((lambda: torch.topk(x, k, dim=-1, sorted=False),))


def _norms(count: int, width: int) -> Operation:
    """Layer norms without gain and bias."""
    x = torch.randn(IN_CACHE // width, width)
    ops, (_, mean, rstd) = torch.ops.aten, torch.native_layer_norm(x, (width,), None, None, 1e-5)
    return Operation(
        (lambda: ops.native_layer_norm(x, (width,), None, None, 1e-5),),
        (
            lambda: ops.native_layer_norm_backward(
                x, x, (width,), mean, rstd, None, None, (True, False, False)
            ),
        ),
        times=-(-count // x.shape[0]),
    )


def _read(table: Tensor) -> Operation:
    """A parameter that is read once, and its gradient that is written once."""
    return Operation((lambda: table.sum(),), (lambda: torch.empty_like(table).fill_(0),))


def _results(forward: int, backward: int) -> Operation:
    """Fresh memory for results that the caller keeps."""
    return Operation(
        (lambda: torch.empty(forward).fill_(0),), (lambda: torch.empty(backward).fill_(0),)
    )


def _projections(case: Case, count: int = 4) -> list[Operation]:
    return [_linear(case.length, case.dim, case.dim) for _ in range(count)]


def _pattern(pair: Pair, case: Case, kind: Pass) -> list[Operation]:
    """The tiles of the plan, without merging; the cheaper height of 32 and 64 queries."""
    module, inputs = build_ours(pair, case), given(pair, case)

    def tiles(rows: int) -> list[Operation]:
        sizes: Counter[tuple[int, int, bool]] = Counter()
        for heads in _plan(module, inputs, rows):
            many = len(range(case.num_heads)[heads.heads])
            for batch in heads.batches:
                keys = positions(batch.tile.cols).shape[-1]
                masked = batch.mask(torch.float32) is not None
                sizes[len(batch.tile.rows), keys, masked] += many * batch.repeats
        operations, left = [], case.num_heads * case.length  # queries that are not in cache yet
        for (t, s, masked), count in sorted(sizes.items(), key=lambda of: -of[1] * of[0][0]):
            operations.append(_tiles(count, t, s, case.head_dim, masked=masked, far=left > 0))
            left -= count * t
        return operations

    return _projections(case, 4 * (pair.scope == "layer")) + _cheapest(map(tiles, (32, 64)), kind)


def _plan(module: nn.Module, inputs: list[Tensor], rows: int) -> TilePlan:
    """The plan that a forward pass uses, with tiles of this many queries."""
    plans = list[TilePlan]()

    def kept(q: Tensor, k: Tensor, v: Tensor, *, plan: TilePlan, **rest: object) -> Tensor:
        plans.append(plan)
        return torch.empty_like(v)

    def planned(*facts: Any, **others: Any) -> TilePlan:
        return plan_tiles(*facts, **others | {"rows": rows})

    patched = mock.patch.multiple(pattern, tile_attention=kept, plan_tiles=planned)
    with patched, torch.no_grad():
        module(*inputs)
    return plans[0]


def _reformer(pair: Pair, case: Case, kind: Pass) -> Iterator[Operation]:
    T, H, K = case.length, case.num_heads, case.head_dim
    hashes, chunk = (pair.options(case)[name] for name in ("num_hashes", "chunk_size"))
    if pair.scope == "layer":
        yield from _projections(case, 3)
    columns = T // chunk  # two buckets for each chunk, one column for two opposite buckets
    yield _without_gradient(_product(H * T // 256, 256, K, hashes * columns, far="a"))
    yield _nearest(hashes * H * T, columns, poles=True)
    yield _sorted(hashes * H, T)
    yield _rows_taken(3 * hashes * H * T, T, K)  # queries, which are the keys; values; results
    # keys are normalised; results of all rounds are weighted and added
    numbers = H * T * K
    yield from _products_of_numbers(numbers + hashes * numbers, 2 * numbers + hashes * numbers)

    def tiles(rows: int) -> list[Operation]:
        return [_tiles(hashes * H * T // rows, rows, rows + chunk, K, far=False)]

    # Causal, each query sees the `chunk` tokens before it; else its own chunk and the one before.
    yield from _cheapest(map(tiles, (chunk // 2, chunk) if case.causal else (chunk,)), kind)


def _routing(pair: Pair, case: Case, kind: Pass) -> Iterator[Operation]:
    T, H, K = case.length, case.num_heads, case.head_dim
    clusters, size = (pair.options(case)[name] for name in ("num_clusters", "window_size"))
    yield _norms(2 * H * T, K)  # clusters depend on normalised queries and keys
    yield _without_gradient(_product(2 * H * T // 256, 256, K, clusters, far="a"))
    if kind == "train":
        yield _sums_by_cluster(2 * H * T, clusters, K)  # centroids follow the tokens
    if not case.causal:
        yield _top_k(2 * H * clusters, T, size)  # members of each cluster
        yield _rows_taken(4 * H * clusters * size, T, K)  # queries, keys, values, results
        yield _tiles(H * clusters, size, size, K, far=False)
        return
    yield _nearest(H * T, clusters)
    yield _sorted(H, T)
    yield _rows_taken(4 * H * T, T, K)

    def tiles(rows: int) -> list[Operation]:
        """Each query sees the `size` tokens of its cluster before it."""
        return [_tiles(H * T // rows, rows, rows + size, K, far=False)]

    yield from _cheapest(map(tiles, (size // 4, size // 2, size)), kind)


def _sinkhorn(pair: Pair, case: Case, kind: Pass) -> Iterator[Operation]:
    T, H, K, size = case.length, case.num_heads, case.head_dim, pair.options(case)["block_size"]
    yield from _projections(case)
    yield _product(2 * H, T // size, T // size, size * K, far="b")  # sorted keys and values
    yield _tiles(H * T // size, size, 2 * size, K)


def _sums(case: Case, features: int, kind: Pass) -> list[Operation]:
    """Features times values, over all tokens, or in chunks where tokens see only earlier ones.

    The sum of a row's weights, by which it is divided, is one more column of the values, or a product of its own, whichever is cheaper.
    """
    T, H, V = case.length, case.num_heads, case.head_dim

    def beside(count: int, rows: int, inner: int, *, far: str = "") -> list[Operation]:
        """A product with the values, or with their sums."""
        apart = [_product(count, rows, inner, V, far=far), _product(count, rows, inner, 1)]
        return _cheapest([[_product(count, rows, inner, V + 1, far=far)], apart], kind)

    if not case.causal:
        return [
            *beside(H * T // 256, features, 256, far="b"),
            *beside(H * T // 256, 256, features, far="c"),
        ]

    def chunks(c: int) -> list[Operation]:
        n = H * T // c
        return [
            _product(n, c, features, c),
            *_products_of_numbers(n * c * c, n * c * c),  # weights of later keys are set to zero
            *beside(n, c, c, far="bc"),
            *beside(n, features, c),
            *beside(n, c, features),
        ]

    return _cheapest(map(chunks, (64, 128)), kind)


def _linear_attention(pair: Pair, case: Case, kind: Pass) -> list[Operation]:
    numbers = case.length * case.dim
    return [
        *_sums(case, case.head_dim, kind),
        *_elu_plus_one(2 * numbers),
        *_products_of_numbers(numbers, numbers),  # times the inverse of the sum of weights
    ]


def _efficient(pair: Pair, case: Case, kind: Pass) -> list[Operation]:
    numbers = 2 * case.length * case.dim
    exponentials = _exponentials(numbers, far=True)
    return [*_projections(case), *_sums(case, case.head_dim, kind), exponentials]


def _rfa(pair: Pair, case: Case, kind: Pass) -> Iterator[Operation]:
    T, H, K, M = case.length, case.num_heads, case.head_dim, 64
    yield _product(2 * H * T // 256, 256, K, M, far="a")
    yield _waves(2 * T * H * M)
    yield from _sums(case, 2 * M, kind)
    yield from _products_of_numbers(T * H * K, T * H * (K + 4 * M))  # y; y, sines and cosines


def _performer(pair: Pair, case: Case, kind: Pass) -> Iterator[Operation]:
    T, H, K = case.length, case.num_heads, case.head_dim
    M = pair.options(case)["num_features"]
    yield _product(2 * H * T // 256, 256, K, M, far="a")
    yield _exponentials(2 * T * H * M, again=True)
    yield from _sums(case, M, kind)
    yield from _products_of_numbers(T * H * K, T * H * (K + 2 * M))  # y; y, exponentials


def _linformer(pair: Pair, case: Case, kind: Pass) -> Iterator[Operation]:
    T, H, K, slots = case.length, case.num_heads, case.head_dim, pair.options(case)["num_slots"]
    yield from _projections(case)
    yield _product(2 * H * T // 256, slots, 256, K, far="b")
    yield _whole(H, T, slots, K)


def _compressed(pair: Pair, case: Case, kind: Pass) -> Iterator[Operation]:
    T, H, K, factor = case.length, case.num_heads, case.head_dim, pair.options(case)["factor"]
    slots = -(-T // factor)
    yield from _projections(case)
    yield _product(2 * H, slots, factor * K, K, far="a")
    yield _whole(H, T, slots // 2 if case.causal else slots, K)


def _synthesizer(
    case: Case, logits: Callable[[int, int, int], list[Operation]], projections: int
) -> list[Operation]:
    """Blocks of 128 x 2,048 pairs: logits, one exponential each, the product with the values."""
    T, rows, cols = case.length, 128, min(2048, case.length)
    pairs = case.num_heads * T * T
    count = pairs // (rows * cols)
    made = logits(count, rows, cols)
    read = _product(count, rows, cols, case.head_dim)
    ways = [[read, _row_sums(count, rows, cols)]]
    more = _without_gradient(_product(count, rows, cols, case.head_dim + 1))
    ways += [[more, Operation((), read.backward, read.times)]]
    return [
        *_projections(case, projections),
        *made,
        *(operation.again for operation in made),
        _exponentials(pairs, again=True),
        *_products_of_numbers(0, pairs),  # of weights and their gradients
        *_cheapest(ways, "forward"),
    ]


def _synthesizer_dense(pair: Pair, case: Case, kind: Pass) -> list[Operation]:
    """The cheaper of two ways: in blocks, or as dot-product attention."""
    T, K = case.length, case.head_dim
    blocks = _synthesizer(case, lambda n, t, s: [_product(n, t, K, s)], 2)
    fused = [*_projections(case, 2), _whole(case.num_heads, T, T, K)]
    return _cheapest([blocks, fused], kind)


def _gated(case: Case, pairs: list[Operation], views: int, hidden: int = 1024) -> list[Operation]:
    """Projections and their silus, scaled and rotated views of the shared one (three passes), the gate."""
    T, D = case.length, case.dim
    numbers = views * T * KEY
    return [
        _linear(T, D, 2 * hidden + KEY),
        _silus(T * (2 * hidden + KEY)),
        *_products_of_numbers(3 * numbers, 4 * numbers),
        *pairs,
        *_products_of_numbers(T * hidden, 2 * T * hidden),
        _linear(T, hidden, D),
    ]


def _squared_relu(
    count: int, rows: int, cols: int, hidden: int, *, again: bool = False
) -> list[Operation]:
    """Blocks of pairs: scores, relu, square, the product with the values. again: the backward repeats all but the product."""
    scores, pairs = _product(count, rows, KEY, cols), count * rows * cols
    return [
        scores,
        *([scores.again] if again else []),
        *_products_of_numbers(2 * pairs, (3 if again else 1) * pairs),
        _product(count, rows, cols, hidden, far="bc"),
    ]


def _flash(pair: Pair, case: Case, kind: Pass) -> list[Operation]:
    c, hidden = pair.options(case)["chunk_size"], 1024
    n = case.length // c
    sums = [_product(n, KEY, c, hidden), _product(n, c, KEY, hidden)]
    return _gated(case, [*_squared_relu(n, c, c, hidden), *sums], views=4)


def _gau(pair: Pair, case: Case, kind: Pass) -> list[Operation]:
    T, c, hidden = case.length, 256, 1024
    n = T * T // c**2 // (2 if case.causal else 1)
    return _gated(case, _squared_relu(n, c, c, hidden, again=True), views=2)


def _mixed_chunk(pair: Pair, case: Case, kind: Pass) -> Iterator[Operation]:
    T, H, K, c = case.length, case.num_heads, case.head_dim, 256
    yield from _projections(case)
    yield _tiles(H * T // c, c, c // 2 if case.causal else c, K)
    yield _product(H * T // c, K, c, K)  # in cache, since the tiles have just read it
    yield _product(H * T // c, c, K, K)


BOUNDS: dict[str, Callable[[Pair, Case, Pass], Iterable[Operation]]] = {
    **dict.fromkeys(PATTERNS, _pattern),
    "reformer": _reformer,
    "routing": _routing,
    "sinkhorn": _sinkhorn,
    "linear": _linear_attention,
    "efficient": _efficient,
    "rfa": _rfa,
    "performer": _performer,
    "linformer": _linformer,
    "compressed": _compressed,
    "synthesizer_factorized_random": lambda pair, case, kind: _synthesizer(
        case, lambda n, t, s: [_product(n, t, 8, s)], 2
    ),
    "synthesizer_factorized_dense": lambda pair, case, kind: _synthesizer(
        case, lambda n, t, s: [], 2
    ),
    "synthesizer_dense": _synthesizer_dense,
    "synthesizer_random": lambda pair, case, kind: _synthesizer(
        case, lambda n, t, s: [_read(torch.randn(case.num_heads, case.length, case.length))], 2
    ),
    "flash": _flash,
    "gau": _gau,
    "mixed_chunk": _mixed_chunk,
}
