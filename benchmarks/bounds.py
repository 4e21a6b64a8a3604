"""The least time of a mechanism on this machine: its indispensable operations alone, each measured at its own shape.

What the caller or a projection gives lies in memory and is read from there once a pass; what a step makes of it stays in
cache, results go to ready memory, and only what a caller keeps is fresh. Nothing is laid out, checked or called through
autograd; running sums and gradients that tiles share are added by the products that make them. Softmax over tiles is one
fused call for many of them, under a mask where the plan has one, the cheapest height of tile taken; its backward is the five products, one exponential of each weight, one
product of two numbers for its gradient, and dy y of each row: other sums and shifts of rows may be columns of the products.
What is not stored for lack of [T T] numbers is made again in the backward. Who wants a shorter time needs other operations
than PyTorch's: a target below this one is out of reach here.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from unittest import mock

import torch
from ours import build_ours, given
from pairs import Case, Pair, Pass
from torch import Tensor, nn

from regard.functional.sparse import attention as pattern
from regard.functional.sparse.tiles import Plan, positions

Call = Callable[[], object]
IN_CACHE = 1 << 18  # numbers of a part's largest tensor
KEY = 128  # channels of a gated unit's queries and keys
PATTERNS = ("local", "strided", "global", "head_mix", "longformer", "bigbird")


@dataclass(frozen=True)
class Part:
    """One operation, and those of its backward; each is called `times`."""

    forward: tuple[Call, ...]
    backward: tuple[Call, ...] = ()
    times: int = 1

    def run(self, kind: Pass) -> None:
        for calls in (self.forward, self.backward if kind == "train" else ()):
            for _ in range(self.times):
                for call in calls:
                    call()

    @property
    def again(self) -> "Part":
        """What the backward makes again, since it was not kept."""
        return Part((), self.forward, self.times)

    def seconds(self, kind: Pass) -> float:
        self.run(kind)
        began = time.perf_counter()
        self.run(kind)
        return time.perf_counter() - began


def bound(pair: Pair, case: Case, kind: Pass) -> list[Part] | None:
    """The parts of one pass, the cheapest for it; None where no bound is written."""
    make = BOUNDS.get(pair.mixer)
    if make is None:
        return None
    parts = list(make(pair, case, kind))
    if pair.door == "layer":
        parts.append(_results(case.length * case.dim, case.length * case.dim))
    else:
        parts.append(_results(case.length * case.dim, 3 * case.length * case.dim))
    return parts


def _linear(tokens: int, wide: int, out: int) -> Part:
    x, w, y = torch.randn(tokens, wide), torch.randn(wide, out), torch.empty(tokens, out)
    dx, dw = torch.empty_like(x), torch.empty_like(w)
    return Part(
        (lambda: torch.mm(x, w, out=y),),
        (lambda: torch.mm(y, w.T, out=dx), lambda: torch.mm(x.T, y, out=dw)),
    )


@cache
def _memory(name: str, numbers: int, dtype: torch.dtype) -> Tensor:
    """Numbers that are too many for the cache; of one name, those of all bounds."""
    return torch.randn(numbers, dtype=dtype)


def _pieces(name: str, times: int, *shape: int) -> Callable[[], Tensor]:
    """One piece of what lies in memory after the other."""
    pieces = cycle(
        _memory(name, times * math.prod(shape), torch.get_default_dtype())
        .view(times, *shape)
        .unbind()
    )
    return lambda: next(pieces)


def _product(count: int, rows: int, inner: int, cols: int, *, far: str = "") -> Part:
    """`count` products [rows inner] x [inner cols], as many in one call as fit in the cache.

    far: which of a, b and, in the backward, c (a b) lie in memory.
    """
    most = IN_CACHE // max(rows * inner, inner * cols, rows * cols)
    together = min(count, max(torch.get_num_threads(), most))
    times = -(-count // together)
    shapes = {"a": (rows, inner), "b": (inner, cols), "c": (rows, cols)}
    a, b, c = (
        _pieces(name, times if name in far else 1, together, *shape)
        for name, shape in shapes.items()
    )
    y, da, db = (torch.empty(together, *shapes[name]) for name in "cab")

    def backward() -> None:
        left, right, dy = a(), b(), c()
        torch.bmm(dy, right.mT, out=da)
        torch.bmm(left.mT, dy, out=db)

    return Part((lambda: torch.bmm(a(), b(), out=y),), (backward,), times)


def _tiles(
    count: int,
    rows: int,
    keys: int,
    width: int,
    *,
    shift: int | None = None,
    masked: bool = False,
    far: bool = True,
) -> Part:
    """Softmax attention of `count` tiles of `rows` queries and `keys` keys, a tile's keys `shift` behind the last's.

    far: all of it lies in memory; else an operation before has just brought it.
    """
    most = min(IN_CACHE // (rows * keys), IN_CACHE // (2 * rows * width))
    together = min(count, max(torch.get_num_threads(), most))
    times = -(-count // together)
    shift = rows if shift is None else shift
    places = times if far else 1
    q, y, dy = (_pieces(name, places, together, rows, width) for name in ("q", "y", "dy"))
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

    return Part(
        (lambda: fused(q()[None], k()[None], v()[None], attn_mask=bias),), (backward,), times
    )


def _windows(
    name: str, places: int, together: int, keys: int, width: int, shift: int
) -> Callable[[], Tensor]:
    """Of a line of keys or values, those of so many tiles at a time."""
    line = _memory(name, (places * together * shift + keys) * width, torch.get_default_dtype())
    shape, strides = (together, keys, width), (shift * width, width, 1)
    step = together * shift * width
    pieces = cycle(line.as_strided(shape, strides, i * step) for i in range(places))
    return lambda: next(pieces)


def _whole(heads: int, tokens: int, keys: int, width: int) -> Part:
    """Softmax attention of every query of a head over the same keys."""
    q, k, v = (torch.randn(1, heads, length, width) for length in (tokens, keys, keys))
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu

    def tiles(rows: int) -> list[Part]:
        part = _tiles(heads * tokens // rows, rows, keys, width, shift=0)
        return [Part((), part.backward, part.times)]

    (backward,) = _cheapest(map(tiles, (64, 128, 256)), "train")
    return Part((lambda: fused(q, k, v),), (lambda: backward.run("train"),))


def _cheapest(ways: Iterable[list[Part]], kind: Pass) -> list[Part]:
    return min(ways, key=lambda parts: sum(part.seconds(kind) for part in parts))


def _exponentials(count: int, *, again: bool = False, far: bool = False) -> Part:
    """again: in the backward too. far: of numbers in memory."""
    times = -(-count // IN_CACHE)
    x, y = _pieces("x", times if far else 1, IN_CACHE), torch.empty(IN_CACHE)
    calls: tuple[Call, ...] = (lambda: torch.exp2(x(), out=y),)
    return Part(calls, calls if again else (), times)


def _silus(count: int) -> Part:
    """Of what projections left in memory."""
    times = -(-count // IN_CACHE)
    x, y, dx = _pieces("x", times, IN_CACHE), torch.empty(IN_CACHE), torch.empty(IN_CACHE)
    ops = torch.ops.aten
    return Part(
        (lambda: ops.silu.out(x(), out=y),),
        (lambda: ops.silu_backward.grad_input(y, x(), grad_input=dx),),
        times,
    )


def _products_of_numbers(forward: int, backward: int = 0) -> Iterator[Part]:
    """One pass over so many numbers; not in place, where repeated products would become too small to be fast."""
    x, y, z = torch.randn(IN_CACHE), torch.randn(IN_CACHE), torch.empty(IN_CACHE)
    calls: tuple[Call, ...] = (lambda: torch.mul(x, y, out=z),)
    yield Part(calls, times=-(-forward // IN_CACHE))
    yield Part((), calls, times=-(-backward // IN_CACHE))


def _elu_plus_one(count: int) -> list[Part]:
    """The cheaper of two ways: elu, and one more; or what lies below zero apart from what lies above."""
    times = -(-count // IN_CACHE)
    x, y, z = _pieces("x", times, IN_CACHE), torch.empty(IN_CACHE), torch.empty(IN_CACHE)

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
    return _cheapest([[Part((way,), (way, back), times)] for way in (whole, apart)], "train")


def _waves(count: int) -> Part:
    x, y = torch.randn(IN_CACHE), torch.empty(IN_CACHE)
    return Part(
        (lambda: torch.sin(x, out=y), lambda: torch.cos(x, out=y)), times=-(-count // IN_CACHE)
    )


def _without_gradient(part: Part) -> Part:
    return Part(part.forward, times=part.times)


def _row_sums(count: int, rows: int, cols: int) -> Part:
    """Forward alone: in the backward they are a column of what is there."""
    together = max(torch.get_num_threads(), IN_CACHE // (rows * cols))
    x, y = torch.randn(together, rows, cols), torch.empty(together, rows)
    return Part((lambda: torch.sum(x, -1, out=y),), times=-(-count // together))


def _rows_taken(count: int, of: int, width: int) -> Part:
    """`count` rows of a table of `of` in any order, and their gradients back to where they were."""
    table, out, order = torch.randn(of, width), torch.empty(of, width), torch.randperm(of)
    take: Call = lambda: torch.index_select(table, 0, order, out=out)  # noqa: E731
    return Part((take,), (take,), times=-(-count // of))


def _nearest(count: int, columns: int, *, poles: bool = False) -> Part:
    """The place of the largest of each row, or smallest: `argmax` takes 20 times as long as these passes."""
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
    return Part(calls, times=-(-count // x.shape[0]))


def _sums_by_cluster(count: int, clusters: int, width: int) -> Part:
    rows = min(count, IN_CACHE // width)
    x, sums = torch.randn(rows, width), torch.zeros(clusters, width)
    place = torch.randint(0, clusters, (rows,))
    return Part((lambda: sums.index_add_(0, place, x),), times=-(-count // rows))


def _sorted(rounds: int, tokens: int) -> Part:
    """Stable, all rounds as one row of 32-bit numbers, which is the fastest sort known."""
    keys = torch.randint(0, rounds * 128, (rounds * tokens,), dtype=torch.int32)
    return Part((lambda: torch.sort(keys, stable=True),))


def _largest(rows: int, of: int, k: int) -> Part:
    x = torch.randn(rows, of)
    return Part((lambda: torch.topk(x, k, dim=-1, sorted=False),))


def _norms(count: int, width: int) -> Part:
    """Layer norms without gain and bias."""
    x = torch.randn(IN_CACHE // width, width)
    ops, (_, mean, rstd) = torch.ops.aten, torch.native_layer_norm(x, (width,), None, None, 1e-5)
    return Part(
        (lambda: ops.native_layer_norm(x, (width,), None, None, 1e-5),),
        (
            lambda: ops.native_layer_norm_backward(
                x, x, (width,), mean, rstd, None, None, (True, False, False)
            ),
        ),
        times=-(-count // x.shape[0]),
    )


def _read(table: Tensor) -> Part:
    """A parameter read once, and its gradient written."""
    return Part((lambda: table.sum(),), (lambda: torch.empty_like(table).fill_(0),))


def _results(forward: int, backward: int) -> Part:
    """Numbers that the caller keeps."""
    return Part((lambda: torch.empty(forward).fill_(0),), (lambda: torch.empty(backward).fill_(0),))


def _projections(case: Case, count: int = 4) -> list[Part]:
    return [_linear(case.length, case.dim, case.dim) for _ in range(count)]


def _pattern(pair: Pair, case: Case, kind: Pass) -> list[Part]:
    """The tiles of the plan, without merging; heights of 32 and 64 queries."""
    module, inputs = build_ours(pair, case), given(pair, case)

    def tiles(rows: int) -> list[Part]:
        sizes: Counter[tuple[int, int, bool]] = Counter()
        for heads in _plan(module, inputs, rows):
            many = len(range(case.num_heads)[heads.heads])
            for batch in heads.batches:
                keys = positions(batch.tile.cols).shape[-1]
                masked = batch.pairs(torch.float32) is not None
                sizes[len(batch.tile.rows), keys, masked] += many * batch.repeats
        parts, left = [], case.num_heads * case.length  # queries that no tile has brought yet
        for (t, s, masked), count in sorted(sizes.items(), key=lambda of: -of[1] * of[0][0]):
            parts.append(_tiles(count, t, s, case.head_dim, masked=masked, far=left > 0))
            left -= count * t
        return parts

    return _projections(case, 4 * (pair.door == "layer")) + _cheapest(map(tiles, (32, 64)), kind)


def _plan(module: nn.Module, inputs: list[Tensor], rows: int) -> Plan:
    """The plan that a forward pass computes with."""
    plans = list[Plan]()

    def kept(q: Tensor, k: Tensor, v: Tensor, *, plan: Plan, **rest: object) -> Tensor:
        plans.append(plan)
        return torch.empty_like(v)

    with mock.patch.multiple(pattern, tile_attention=kept, FORWARD_ROWS=rows), torch.no_grad():
        module(*inputs)
    return plans[0]


def _reformer(pair: Pair, case: Case, kind: Pass) -> Iterator[Part]:
    T, H, K = case.length, case.num_heads, case.head_dim
    hashes, chunk = (pair.options(case)[name] for name in ("num_hashes", "chunk_size"))
    if pair.door == "layer":
        yield from _projections(case, 3)
    columns = T // chunk  # two buckets for each chunk, one column for two opposite buckets
    yield _without_gradient(_product(H * T // 256, 256, K, hashes * columns, far="a"))
    yield _nearest(hashes * H * T, columns, poles=True)
    yield _sorted(hashes * H, T)
    yield _rows_taken(3 * hashes * H * T, T, K)  # queries, which are the keys; values; results
    # keys are made unit vectors; results of all rounds are weighted and added
    numbers = H * T * K
    yield from _products_of_numbers(numbers + hashes * numbers, 2 * numbers + hashes * numbers)

    def tiles(rows: int) -> list[Part]:
        return [_tiles(hashes * H * T // rows, rows, rows + chunk, K, far=False)]

    # Causal, each query sees the `chunk` tokens before it; else its own chunk and the one before.
    yield from _cheapest(map(tiles, (chunk // 2, chunk) if case.causal else (chunk,)), kind)


def _routing(pair: Pair, case: Case, kind: Pass) -> Iterator[Part]:
    T, H, K = case.length, case.num_heads, case.head_dim
    clusters, size = (pair.options(case)[name] for name in ("num_clusters", "window_size"))
    yield _norms(2 * H * T, K)  # queries and keys are scored by their direction alone
    yield _without_gradient(_product(2 * H * T // 256, 256, K, clusters, far="a"))
    if kind == "train":
        yield _sums_by_cluster(2 * H * T, clusters, K)  # centroids follow the tokens
    if not case.causal:
        yield _largest(2 * H * clusters, T, size)  # who belongs to which cluster
        yield _rows_taken(4 * H * clusters * size, T, K)  # queries, keys, values, results
        yield _tiles(H * clusters, size, size, K, far=False)
        return
    yield _nearest(H * T, clusters)
    yield _sorted(H, T)
    yield _rows_taken(4 * H * T, T, K)

    def tiles(rows: int) -> list[Part]:
        """Each query sees the `size` tokens of its cluster before it."""
        return [_tiles(H * T // rows, rows, rows + size, K, far=False)]

    yield from _cheapest(map(tiles, (size // 4, size // 2, size)), kind)


def _sinkhorn(pair: Pair, case: Case, kind: Pass) -> Iterator[Part]:
    T, H, K, size = case.length, case.num_heads, case.head_dim, pair.options(case)["block_size"]
    yield from _projections(case)
    yield _product(2 * H, T // size, T // size, size * K, far="b")  # sorted keys and values
    yield _tiles(H * T // size, size, 2 * size, K)


def _sums(case: Case, features: int, kind: Pass) -> list[Part]:
    """Features times values, over all tokens, or in chunks where tokens see only earlier ones.

    Totals of a row's weights, by which it is divided, are one more column of the values, or apart, whichever is cheaper.
    """
    T, H, V = case.length, case.num_heads, case.head_dim

    def beside(count: int, rows: int, inner: int, *, far: str = "") -> list[Part]:
        """A product with the values, or with sums of such."""
        apart = [_product(count, rows, inner, V, far=far), _product(count, rows, inner, 1)]
        return _cheapest([[_product(count, rows, inner, V + 1, far=far)], apart], kind)

    if not case.causal:
        return [
            *beside(H * T // 256, features, 256, far="b"),
            *beside(H * T // 256, 256, features, far="c"),
        ]

    def chunks(c: int) -> list[Part]:
        n = H * T // c
        return [
            _product(n, c, features, c),
            *_products_of_numbers(n * c * c, n * c * c),  # those of later keys are taken out
            *beside(n, c, c, far="bc"),
            *beside(n, features, c),
            *beside(n, c, features),
        ]

    return _cheapest(map(chunks, (64, 128)), kind)


def _linear_attention(pair: Pair, case: Case, kind: Pass) -> list[Part]:
    numbers = case.length * case.dim
    return [
        *_sums(case, case.head_dim, kind),
        *_elu_plus_one(2 * numbers),
        *_products_of_numbers(numbers, numbers),  # by the inverse of the sum of weights
    ]


def _efficient(pair: Pair, case: Case, kind: Pass) -> list[Part]:
    numbers = 2 * case.length * case.dim
    exponentials = _exponentials(numbers, far=True)
    return [*_projections(case), *_sums(case, case.head_dim, kind), exponentials]


def _rfa(pair: Pair, case: Case, kind: Pass) -> Iterator[Part]:
    T, H, K, M = case.length, case.num_heads, case.head_dim, 64
    yield _product(2 * H * T // 256, 256, K, M, far="a")
    yield _waves(2 * T * H * M)
    yield from _sums(case, 2 * M, kind)
    yield from _products_of_numbers(T * H * K, T * H * (K + 4 * M))  # y; y, sines and cosines


def _performer(pair: Pair, case: Case, kind: Pass) -> Iterator[Part]:
    T, H, K = case.length, case.num_heads, case.head_dim
    M = pair.options(case)["num_features"]
    yield _product(2 * H * T // 256, 256, K, M, far="a")
    yield _exponentials(2 * T * H * M, again=True)
    yield from _sums(case, M, kind)
    yield from _products_of_numbers(T * H * K, T * H * (K + 2 * M))  # y; y, exponentials


def _linformer(pair: Pair, case: Case, kind: Pass) -> Iterator[Part]:
    T, H, K, slots = case.length, case.num_heads, case.head_dim, pair.options(case)["num_slots"]
    yield from _projections(case)
    yield _product(2 * H * T // 256, slots, 256, K, far="b")
    yield _whole(H, T, slots, K)


def _compressed(pair: Pair, case: Case, kind: Pass) -> Iterator[Part]:
    T, H, K, factor = case.length, case.num_heads, case.head_dim, pair.options(case)["factor"]
    slots = -(-T // factor)
    yield from _projections(case)
    yield _product(2 * H, slots, factor * K, K, far="a")
    yield _whole(H, T, slots // 2 if case.causal else slots, K)


def _synthesizer(
    case: Case, logits: Callable[[int, int, int], list[Part]], projections: int
) -> list[Part]:
    """Blocks of 128 x 2,048 pairs: logits, an exponential of each, the product with the values."""
    T, rows, cols = case.length, 128, min(2048, case.length)
    pairs = case.num_heads * T * T
    count = pairs // (rows * cols)
    made = logits(count, rows, cols)
    read = _product(count, rows, cols, case.head_dim)
    ways = [[read, _row_sums(count, rows, cols)]]
    more = _without_gradient(_product(count, rows, cols, case.head_dim + 1))
    ways += [[more, Part((), read.backward, read.times)]]
    return [
        *_projections(case, projections),
        *made,
        *(part.again for part in made),
        _exponentials(pairs, again=True),
        *_products_of_numbers(0, pairs),  # of weights and their gradients
        *_cheapest(ways, "forward"),
    ]


def _synthesizer_dense(pair: Pair, case: Case, kind: Pass) -> list[Part]:
    """In blocks, or as dot-product attention."""
    T, K = case.length, case.head_dim
    blocks = _synthesizer(case, lambda n, t, s: [_product(n, t, K, s)], 2)
    fused = [*_projections(case, 2), _whole(case.num_heads, T, T, K)]
    return _cheapest([blocks, fused], kind)


def _gated(case: Case, pairs: list[Part], views: int, hidden: int = 1024) -> list[Part]:
    """Projections and their silus, views of the shared one scaled and turned (three passes), the gate."""
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
) -> list[Part]:
    """Blocks of pairs: scores, relu, square, the product with the values. again: all but this in the backward too."""
    scores, pairs = _product(count, rows, KEY, cols), count * rows * cols
    return [
        scores,
        *([scores.again] if again else []),
        *_products_of_numbers(2 * pairs, (3 if again else 1) * pairs),
        _product(count, rows, cols, hidden, far="bc"),
    ]


def _flash(pair: Pair, case: Case, kind: Pass) -> list[Part]:
    c, hidden = pair.options(case)["chunk_size"], 1024
    n = case.length // c
    sums = [_product(n, KEY, c, hidden), _product(n, c, KEY, hidden)]
    return _gated(case, [*_squared_relu(n, c, c, hidden), *sums], views=4)


def _gau(pair: Pair, case: Case, kind: Pass) -> list[Part]:
    T, c, hidden = case.length, 256, 1024
    n = T * T // c**2 // (2 if case.causal else 1)
    return _gated(case, _squared_relu(n, c, c, hidden, again=True), views=2)


def _mixed_chunk(pair: Pair, case: Case, kind: Pass) -> Iterator[Part]:
    T, H, K, c = case.length, case.num_heads, case.head_dim, 256
    yield from _projections(case)
    yield _tiles(H * T // c, c, c // 2 if case.causal else c, K)
    yield _product(H * T // c, K, c, K)  # what the tiles have just read
    yield _product(H * T // c, c, K, K)


BOUNDS: dict[str, Callable[[Pair, Case, Pass], Iterable[Part]]] = {
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
