"""Shared parts of the oracles: one row of the batch at a time, invalid tokens removed, allowed pairs by the definitions.

Nothing here is fast or clever; it imports torch alone, so that an oracle cannot share a bug with the library.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import wraps

import torch
from torch import Tensor
from torch.nn.functional import linear as affine, rms_norm

from regard.reference._rotary import turned

Params = dict[str, Tensor]
Numbers = dict[int, Tensor]  # of keys: scores or weights
Weigh = Callable[[int, int], Numbers]  # head, query -> weights


@dataclass
class Row:
    """One example with only its valid tokens, in order."""

    index: int  # in the batch
    x: Tensor  # [T D] the queries' tokens
    context: Tensor  # [S D] the keys' tokens: x itself without a context
    is_cross: bool
    causal: bool
    allowed: list[
        list[list[bool]]
    ]  # [H T S] by causal, pairwise; the mechanism's own pattern comes on top
    is_global: list[bool]  # [S]
    plan: dict[str, Tensor] | None  # random or data-dependent structure, for the whole batch
    H: int  # heads

    @property
    def T(self) -> int:
        return self.x.shape[0]

    @property
    def S(self) -> int:
        return self.context.shape[0]

    def keys(self, h: int, i: int) -> list[int]:
        """The keys that query i of head h may see."""
        return [j for j in range(self.S) if self.allowed[h][i][j]]


def oracle(mix_row: Callable) -> Callable:
    """`mix_row(params, options, row) -> (y [T D], weights [H T S] | None)` as an oracle of whole requests."""

    @wraps(mix_row)
    def whole(params, options, x, *, context=None, **request):
        y, weights = torch.zeros_like(x), None
        S = (x if context is None else context).shape[1]
        for row, queries, keys in _rows(x, context, options.get("num_heads") or 1, **request):
            mixed, found = mix_row(params, options, row)
            external = 0 if found is None else found.shape[2] - len(keys)  # learned keys come first
            columns = [*range(external), *(external + j for j in keys)]
            if weights is None and found is not None:
                weights = x.new_zeros(len(x), len(found), x.shape[1], external + S)
            for i, query in enumerate(queries):
                if any(any(head[i]) for head in row.allowed):
                    y[row.index, query] = mixed[i]
                    if weights is not None:
                        weights[row.index, :, query][:, columns] = found[:, i]
        return y, weights

    del whole.__wrapped__  # the signature is that of whole requests
    return whole


def _rows(
    x: Tensor,
    context: Tensor | None,
    H: int,
    *,
    causal: bool = False,
    valid: Tensor | None = None,
    pairwise: Tensor | None = None,
    global_tokens: Tensor | None = None,
    plan: dict[str, Tensor] | None = None,
) -> Iterator[tuple[Row, list[int], list[int]]]:
    """Each row with a query and a key, and where its queries and keys were."""
    source = x if context is None else context
    is_cross = context is not None
    if pairwise is None:
        pairwise = torch.ones(1, 1, x.shape[1], source.shape[1])
    for b in range(len(x)):
        keys = [j for j in range(source.shape[1]) if valid is None or valid[b, j]]
        queries = list(range(x.shape[1])) if is_cross else keys
        if not queries or not keys:
            continue
        pairs = pairwise[b % len(pairwise)].tolist()
        allowed = [
            [
                [
                    bool(pairs[h % len(pairs)][i][j])
                    and (not causal or place_j <= place_i + len(keys) - len(queries))
                    for place_j, j in enumerate(keys)
                ]
                for place_i, i in enumerate(queries)
            ]
            for h in range(max(H, len(pairs)))
        ]
        is_global = [global_tokens is not None and bool(global_tokens[b, j]) for j in keys]
        tokens = x[b, queries], source[b, keys]
        yield Row(b, *tokens, is_cross, causal, allowed, is_global, plan, H), queries, keys


def linear(params: Params, name: str, x: Tensor) -> Tensor:
    """x W^T + b with `name.weight` and, where it exists, `name.bias`."""
    return affine(x, params[f"{name}.weight"], params.get(f"{name}.bias"))


def part(params: Params, prefix: str) -> Params:
    """The parameters below a name, by their names there."""
    return {name.removeprefix(prefix): p for name, p in params.items() if name.startswith(prefix)}


def heads(
    params: Params,
    row: Row,
    *,
    of: str = "heads",
    external: Tensor | None = None,
    turn: dict | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """q [T H K], k and v [E+S H K] by the projections of.query, of.key and of.value; head h has the keys of its group.

    Without of.key, keys are the queries of unit norm. external [E D]: learned tokens before the keys'. turn: the options
    of a mixer whose positions turn queries and keys.
    """
    source = row.context if external is None else torch.cat([external, row.context])
    q = normed(params, f"{of}.query_norm", linear(params, f"{of}.query", row.x))
    q = q.reshape(row.T, row.H, -1)
    v = of_groups(linear(params, f"{of}.value", source), row.H, q.shape[2])
    if f"{of}.key.weight" in params:
        k = normed(params, f"{of}.key_norm", linear(params, f"{of}.key", source))
        k = of_groups(k, row.H, q.shape[2])
    else:
        k = q / q.norm(dim=-1, keepdim=True).clamp_min(1e-12)
    return turned(q, turn or {}), turned(k, turn or {}), v


def normed(params: Params, name: str, z: Tensor) -> Tensor:
    """RMS norm of as many channels at a time as the gain has, where there is one."""
    if f"{name}.weight" not in params:
        return z
    gain = params[f"{name}.weight"]
    return rms_norm(z.unflatten(-1, (-1, len(gain))), gain.shape, gain, 1e-5).flatten(-2)


def of_groups(z: Tensor, H: int, K: int) -> Tensor:
    """z [S G*K] -> [S H K]: head h reads those of its group."""
    z = z.reshape(len(z), -1, K)
    return z[:, [h * z.shape[1] // H for h in range(H)]]


def attend(
    params: Params, row: Row, v: Tensor, weigh: Weigh, out: str = "heads.out"
) -> tuple[Tensor, Tensor]:
    """`mix`, and its output through the projection `out` -> (y [T D], weights [H T S])."""
    mixed, weights = mix(row, v, weigh)
    return projected(params, row, mixed, out), weights


def projected(params: Params, row: Row, mixed: Tensor, out: str = "heads.out") -> Tensor:
    """Through the output gate, where there is one, and the projection `out`."""
    if "heads.gate.weight" in params:
        mixed = mixed * linear(params, "heads.gate", row.x).sigmoid()
    return linear(params, out, mixed)


def mix(row: Row, v: Tensor, weigh: Weigh) -> tuple[Tensor, Tensor]:
    """y_i = concat_h sum_j w_j v_jh with {j: w_j} = weigh(h, i) -> (y [T H*V], weights [H T S]); v is [S H V]."""
    S, H, V = v.shape
    weights = row.x.new_zeros(H, row.T, S)
    mixed = []
    for i in range(row.T):
        parts = []
        for h in range(H):
            found = weigh(h, i)
            if not found:
                parts.append(row.x.new_zeros(V))
                continue
            seen = list(found)
            w = torch.stack(list(found.values()))
            weights[h, i, seen] = w.detach()
            parts.append(w @ v[seen, h])
        mixed.append(torch.cat(parts))
    return torch.stack(mixed), weights


def softmax(scores: Numbers) -> Numbers:
    """Weights of the keys, whose sum is 1."""
    if not scores:
        return {}
    return dict(zip(scores, torch.stack(list(scores.values())).softmax(0), strict=True))


def products(q: Tensor, k: Tensor, h: int, i: int, keys: Iterable[int]) -> Numbers:
    """q_i . k_j / sqrt(K) of these keys in head h."""
    keys = list(keys)
    return dict(zip(keys, k[keys, h] @ q[i, h] / q.shape[-1] ** 0.5, strict=True))


def beside_sink(
    scores: Numbers,
    params: Params,
    options: dict,
    h: int,
    added: Callable[[int], Tensor | float] = lambda j: 0.0,
) -> Numbers:
    """Softmax of scores and of the sink of head h, which has no value, capped by c tanh(z / c), before a bias is added to those of keys."""
    if "sinks" in params:
        scores = {**scores, -1: params["sinks"][h]}
    if c := options.get("soft_cap"):
        scores = {j: c * (z / c).tanh() for j, z in scores.items()}
    scores = {j: z + added(j) if j >= 0 else z for j, z in scores.items()}
    return {j: w for j, w in softmax(scores).items() if j >= 0}
