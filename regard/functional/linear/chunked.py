"""Chunked scan of kernel attention: features, sums and gradients for one group of chunks at a time.

Causal: each group reads and extends the state S. Otherwise all keys are summed first, and then all queries read the sum.
Values get a last column of ones, so that the sum of a row's weights is one more column of its sums. The backward makes a
group's features again. Gradients of the sums are written out here and in `chunks`; those of features come from the
mechanism if it has written them, else from autograd, which takes twice as long.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core.mask import Mask
from regard.functional.linear import chunks
from regard.functional.linear.chunks import ChunkGroups, put, token_bytes
from regard.functional.shared.implementation import Cut
from regard.functional.shared.numerics import add_product, exp

Denominator = Callable[[Tensor], Tensor]  # sum of a row's weights -> what its values are divided by


class KeyFeatures(NamedTuple):
    phi: Float[Tensor, "B H S M"]
    log_decay: Float[Tensor, "B H S"] | None = None  # of the sums over earlier keys
    after: Float[Tensor, "B H"] | None = None  # passed on to the features of later keys


Gradients = Sequence[Tensor | None]


class HandWritten(NamedTuple):
    """The functions of `Features` together with their gradients; what they make may be changed in place by them alone.

    queries(q, *weights) -> phi_q, back, where back(dphi_q), called once and last, gives the gradients of q and of the
    weights (None for those that need none). keys(before, k, valid, *weights) -> KeyFeatures, back.
    """

    queries: Callable[..., tuple[Tensor, Callable[[Tensor], Gradients]]]
    keys: Callable[..., tuple[KeyFeatures, Callable[[Tensor], Gradients]]]


@dataclass(frozen=True)
class Features:
    """Features as functions, so that they can be made for some tokens at a time, and again.

    queries(q, *weights) -> phi_q.  keys(before, k, valid, extra, *weights) -> KeyFeatures of some tokens, where `before` is the
    `after` of the tokens before them, None at the start. The functions may hold no other tensor that needs a gradient.
    Where order does not matter, a decay means that all keys are taken as after the last, and `floor` is added to phi of
    queries and keys, which is one more row of their sums.
    `decays`: whether keys come with a decay.
    """

    width: int  # numbers in phi
    queries: Callable[..., Tensor]
    keys: Callable[..., KeyFeatures]
    floor: float = 0.0
    decays: bool = False
    hand_written: HandWritten | None = None  # without `extra`


class ScanRequest(NamedTuple):
    features: Features
    denominator: Denominator
    mask: Mask
    keep: bool  # whether there may be a backward
    cut: Cut


class ChunkedScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, how, q, k, v, extra, rise, *weights):
        """rise: see `feature_attention`; here for its gradient."""
        inputs = _Inputs(how, q, k, v, extra, weights)
        y = torch.empty_like(q if q.shape[2] != k.shape[2] and q.shape[3] == v.shape[3] else v)
        if y.shape[2] != q.shape[2]:
            y = v.new_empty(*q.shape[:3], v.shape[3])
        wide = torch.promote_types(v.dtype, torch.float32)
        total = q.new_empty(*q.shape[:3], 1, dtype=wide)
        go = _causally if how.mask.causal else _at_once
        ctx.steps, states = [], []
        for group in chunks.examples(k, how.features.width, how.cut):
            heads = (group.stop - group.start) * k.shape[1]
            S = q.new_zeros(heads, how.features.width, v.shape[3] + 1, dtype=wide)
            for step, state in go(inputs, group, S, y, total):
                if how.keep:
                    ctx.steps.append(step)
                    states.append(state)
        ctx.how, ctx.count = how, len(weights)
        ctx.save_for_backward(q, k, v, extra, y, total, *weights, *states)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        q, k, v, extra, y, total, *others = ctx.saved_tensors
        needed = ctx.needs_input_grad[6:]
        weights = [w.detach().requires_grad_(n) for w, n in zip(others, needed, strict=False)]
        inputs = _Inputs(ctx.how, q, k, v, extra, weights)
        outputs = _Outputs.of(ctx.how, y, total, dy)
        gradients = _Gradients(
            torch.empty_like(q),
            torch.empty_like(k),
            torch.empty_like(v),
            None,
            None,
            [None] * ctx.count,
        )
        if ctx.how.features.floor:
            gradients.rise = total.new_empty(k.shape[:2])
        if extra is not None:
            gradients.extra = torch.empty_like(extra)
        back = _causally_back if ctx.how.mask.causal else _at_once_back
        with torch.autocast("cpu", enabled=False):
            back(inputs, outputs, gradients, list(zip(ctx.steps, others[ctx.count :], strict=True)))
        g = gradients
        return None, g.q, g.k, g.v, g.extra, g.rise, *g.weights


# One call per group, so that its temporaries are freed before the next group is made.


def _causally(inputs: "_Inputs", group: slice, S: Tensor, y: Tensor, total: Tensor):
    before, groups = None, ChunkGroups(y.shape[2], token_bytes(S), inputs.how.cut)
    for rows in groups:
        keys = inputs.keys(group, rows, before)
        if keys.log_decay is not None and chunks.moves_far(keys.log_decay[..., 1:].sum(-1).neg()):
            groups.halve(rows)
            continue
        yield (group, rows, before), S
        before, S = keys.after, _causal_piece(inputs, group, rows, keys, S, y, total)
        del keys


def _causal_piece(
    inputs: "_Inputs",
    group: slice,
    rows: slice,
    keys: KeyFeatures,
    S: Tensor,
    y: Tensor,
    total: Tensor,
) -> Tensor:
    scale = _Scale.of(keys.log_decay)
    a, e, v = inputs.queries(group, rows), keys.phi, scale.values(inputs.values(group, rows))
    sums, S = chunks.sums(a.flatten(0, 1), e.flatten(0, 1), v, scale.state(S), inputs.how.cut.chunk)
    _divide(
        inputs.how,
        sums[..., :-1],
        sums[..., -1:],
        scale.up,
        y[group, :, rows],
        total[group, :, rows],
    )
    return S


def _causally_back(inputs: "_Inputs", outputs: "_Outputs", gradients: "_Gradients", steps: list):
    for (group, rows, before), S in reversed(steps):
        if rows.stop == outputs.y.shape[2]:
            dS = torch.zeros_like(S)
        dS = _causal_piece_back(inputs, outputs, gradients, (group, rows, before), S, dS)


def _causal_piece_back(
    inputs: "_Inputs",
    outputs: "_Outputs",
    gradients: "_Gradients",
    step: tuple,
    S: Tensor,
    dS: Tensor,
) -> Tensor:
    group, rows, before = step
    phi_q, queries_back = inputs.queries_and_back(group, rows)
    keys, keys_back = inputs.keys_and_back(group, rows, before)
    scale = _Scale.of(keys.log_decay)
    a, e, S = phi_q.flatten(0, 1), keys.phi.flatten(0, 1), scale.state(S)
    v, dy = scale.values(inputs.values(group, rows)), scale.queries(outputs.gradients(group, rows))
    found = chunks.sums_backward(a, e, v, S, dy, dS, inputs.how.cut.chunk)
    of_decay = None
    if keys.log_decay is not None and inputs.extra is not None:
        of_keys, of_queries = (found.e * e).sum(-1), (found.a * a).sum(-1)
        of_decay = _decay_gradient(of_queries, of_keys, (found.S * S).sum((1, 2)))
    put(gradients.v, group, rows, scale.keys(found.v[..., :-1]))
    gradients.queries(group, rows, queries_back(found.a.view(phi_q.shape)))
    gradients.keys(group, rows, keys_back(found.e.view(keys.phi.shape), of_decay))
    return scale.state(found.S)


def _decay_gradient(
    of_queries: Float[Tensor, "b t"], of_keys: Float[Tensor, "b t"], of_state: Float[Tensor, "b"]
) -> Float[Tensor, "b t"]:
    """From gradients of the logs of factors e^(G_i - G_t), e^(G_t - G_j), e^(G_t), with G the running sum of log-decays."""
    G = of_queries - of_keys
    G[:, -1] += of_state - G.sum(1)
    return G.flip(1).cumsum(1).flip(1)


def _at_once(inputs: "_Inputs", group: slice, S: Tensor, y: Tensor, total: Tensor):
    before, floor = None, inputs.how.features.floor
    S, z = S[..., :-1].contiguous(), S[..., -1:].contiguous()
    for rows in ChunkGroups(inputs.k.shape[2], token_bytes(S), inputs.how.cut):
        before = _extend(inputs, group, rows, before, S, z)
    if floor:
        one = inputs.present(group)
        S += floor * (one.mT @ chunks.cut(inputs.v, group, slice(None)).to(S.dtype))
        z += floor * one.sum(1, keepdim=True)
    S = torch.cat([S, z], dim=-1)
    yield (group, None, before), S
    least = floor * S.sum(1, keepdim=True) if floor else None
    S = S.to(y.dtype)
    for rows in ChunkGroups(y.shape[2], token_bytes(S), inputs.how.cut):
        _read(inputs, group, rows, S, least, y[group, :, rows], total[group, :, rows])


def _extend(
    inputs: "_Inputs", group: slice, rows: slice, before: Tensor | None, S: Tensor, z: Tensor
) -> Tensor | None:
    """Adds these keys to S and z in place; returns what the features of later keys depend on."""
    keys = inputs.keys(group, rows, before)
    scale = _Scale.of(keys.log_decay)
    if scale.carry is not None:
        S *= scale.carry
        z *= scale.carry
    e, v = keys.phi.flatten(0, 1), inputs.values(group, rows)
    add_product(S, e.mT, scale.keys(v))
    if scale.down is None:
        z += e.sum(1, dtype=z.dtype)[..., None]
    else:
        add_product(z, e.mT, scale.down.to(e.dtype))
    return keys.after


def _read(
    inputs: "_Inputs",
    group: slice,
    rows: slice,
    S: Tensor,
    least: Float[Tensor, "b 1 V+1"] | None,
    y: Tensor,
    total: Tensor,
):
    """least: what `floor` in every feature of a query reads."""
    a = inputs.queries(group, rows).flatten(0, 1)
    sums = (
        a @ S
    )  # one product: that with a single column takes most of the time of that with all on some processors
    if least is not None:
        sums += least
    _divide(inputs.how, sums[..., :-1], sums[..., -1:], None, y, total)


def _at_once_back(inputs: "_Inputs", outputs: "_Outputs", gradients: "_Gradients", steps: list):
    for (group, _, before), S in steps:
        dS, S = torch.zeros_like(S), S.to(outputs.y.dtype)
        all_dy = torch.zeros_like(dS[:, :1])
        for rows in ChunkGroups(outputs.y.shape[2], token_bytes(S), inputs.how.cut):
            _read_back(inputs, outputs, gradients, group, rows, S, dS, all_dy)
        floor = inputs.how.features.floor
        dS.add_(all_dy, alpha=floor)
        if gradients.rise is not None:
            v = _with_ones(inputs.values(group, slice(None))).to(dS.dtype)
            of_floor = (dS.sum(1, keepdim=True) * (inputs.present(group).mT @ v)).sum(-1)
            gradients.rise[group] = floor * of_floor.view(-1, gradients.rise.shape[1])
        dS = dS.to(S.dtype)
        for rows in ChunkGroups(inputs.k.shape[2], token_bytes(S), inputs.how.cut):
            _extend_back(inputs, gradients, group, rows, before, dS)


def _read_back(
    inputs: "_Inputs",
    outputs: "_Outputs",
    gradients: "_Gradients",
    group: slice,
    rows: slice,
    S: Tensor,
    dS: Tensor,
    all_dy: Float[Tensor, "b 1 V+1"],
):
    """all_dy: what `floor` in every feature of a query adds to each row of dS, over the floor."""
    phi_q, back = inputs.queries_and_back(group, rows)
    dy = outputs.gradients(group, rows)
    add_product(dS, phi_q.flatten(0, 1).mT, dy)
    gradients.queries(group, rows, back((dy @ S.mT).view(phi_q.shape)))
    if inputs.how.features.floor:
        all_dy += dy.sum(1, keepdim=True, dtype=dS.dtype)


def _extend_back(
    inputs: "_Inputs",
    gradients: "_Gradients",
    group: slice,
    rows: slice,
    before: Tensor | None,
    dS: Tensor,
):
    keys, back = inputs.keys_and_back(group, rows, before)
    of_v = dS[..., :-1]
    dv = keys.phi.flatten(0, 1) @ of_v
    if floor := inputs.how.features.floor:
        one = inputs.present(group)[:, rows].to(dv.dtype)
        dv.addcmul_(one, of_v.sum(1, keepdim=True), value=floor)
    put(gradients.v, group, rows, dv)
    dphi = _with_ones(inputs.values(group, rows)) @ dS.mT
    gradients.keys(group, rows, back(dphi.view(keys.phi.shape), None))


def _divide(how: ScanRequest, sums: Tensor, d: Tensor, up: Tensor | None, y: Tensor, total: Tensor):
    """y = up sums / n(total), total = up d."""
    total.copy_((d if up is None else d * up).view(total.shape))
    inverse = how.denominator(total).reciprocal()
    torch.mul(sums.view(y.shape), inverse if up is None else inverse * up.view(total.shape), out=y)


class _Scale(NamedTuple):
    """Decays of a piece as factors of its values, of the state before it and of its sums; the state is as at its end."""

    up: Float[Tensor, "b t 1"] | None
    down: Float[Tensor, "b t 1"] | None
    carry: Float[Tensor, "b 1 1"] | None

    @classmethod
    def of(cls, log_decay: Float[Tensor, "b h t"] | None) -> "_Scale":
        if log_decay is None:
            return cls(None, None, None)
        G = log_decay.flatten(0, 1).cumsum(1)[..., None]
        end = G[:, -1:]
        return cls(exp(G - end), exp(end - G), exp(end))

    def values(self, v: Float[Tensor, "b t V"]) -> Float[Tensor, "b t V+1"]:
        """With the column of ones."""
        return self.keys(_with_ones(v))

    def keys(self, x: Float[Tensor, "b t M"]) -> Float[Tensor, "b t M"]:
        return x if self.down is None else x * self.down.to(x.dtype)

    def queries(self, x: Float[Tensor, "b t M"]) -> Float[Tensor, "b t M"]:
        return x if self.up is None else x * self.up.to(x.dtype)

    def state(self, S: Tensor) -> Tensor:
        return S if self.carry is None else S * self.carry


def _with_ones(v: Float[Tensor, "b t V"]) -> Float[Tensor, "b t V+1"]:
    more = v.new_empty(*v.shape[:2], v.shape[2] + 1)
    more[..., :-1], more[..., -1:] = v, 1.0
    return more


class _Inputs(NamedTuple):
    how: ScanRequest
    q: Float[Tensor, "B H T K"]
    k: Float[Tensor, "B H S K"]
    v: Float[Tensor, "B H S V"]
    extra: Float[Tensor, "B H S"] | None
    weights: tuple[Tensor, ...] | list[Tensor]

    def queries(self, group: slice, rows: slice) -> Tensor:
        q, features = self.q[group, :, rows], self.how.features
        if features.hand_written is not None:
            return features.hand_written.queries(q, *self.weights)[0]
        return features.queries(q, *self.weights)

    def keys(self, group: slice, rows: slice, before: Tensor | None) -> KeyFeatures:
        k, valid, features = self.k[group, :, rows], self.valid(group, rows), self.how.features
        if features.hand_written is not None:
            keys, _ = features.hand_written.keys(before, k, valid, *self.weights)
        else:
            extra = None if self.extra is None else self.extra[group, :, rows]
            keys = features.keys(before, k, valid, extra, *self.weights)
        return keys._replace(phi=present(keys.phi, valid))

    def queries_and_back(self, group: slice, rows: slice):
        """phi_q, and what makes the gradients of q and the weights from its own."""
        q, features = self.q[group, :, rows], self.how.features
        if features.hand_written is not None:
            return features.hand_written.queries(q, *self.weights)
        q = q.detach().requires_grad_()
        with torch.enable_grad():
            phi = features.queries(q, *self.weights)
        return phi.detach(), lambda dphi: _asked([(phi, dphi)], [q, *self.weights])

    def keys_and_back(self, group: slice, rows: slice, before: Tensor | None):
        """The keys, and what makes the gradients of k, `extra` and the weights from those of phi and the log-decay."""
        k, valid, features = self.k[group, :, rows], self.valid(group, rows), self.how.features
        if features.hand_written is not None:
            keys, back = features.hand_written.keys(before, k, valid, *self.weights)

            def hand_written(dphi: Tensor, _: None) -> Gradients:
                dk, *others = back(present(dphi, valid))
                return dk, None, *others

            return keys._replace(phi=present(keys.phi, valid)), hand_written
        k = k.detach().requires_grad_()
        extra = None if self.extra is None else self.extra[group, :, rows].detach().requires_grad_()
        with torch.enable_grad():
            made = features.keys(before, k, valid, extra, *self.weights)
            phi, decay = present(made.phi, valid), made.log_decay

        def by_autograd(dphi: Tensor, of_decay: Tensor | None) -> Gradients:
            return _asked([(phi, dphi), (decay, of_decay)], [k, extra, *self.weights])

        decay_only = None if decay is None else decay.detach()
        return made._replace(phi=phi.detach(), log_decay=decay_only), by_autograd

    def valid(self, group: slice, rows: slice) -> Bool[Tensor, "b t"] | None:
        return None if self.how.mask.valid is None else self.how.mask.valid[group, rows]

    def values(self, group: slice, rows: slice) -> Float[Tensor, "b t V"]:
        return chunks.cut(self.v, group, rows)

    def present(self, group: slice) -> Float[Tensor, "b S 1"]:
        """One for every key that exists, zero for others."""
        valid, H, S = self.how.mask.valid, self.k.shape[1], self.k.shape[2]
        wide = torch.promote_types(self.k.dtype, torch.float32)
        if valid is None:
            return self.k.new_ones((group.stop - group.start) * H, S, 1, dtype=wide)
        return valid[group].repeat_interleave(H, 0)[..., None].to(wide)


def present(phi_k: Float[Tensor, "B H S M"], valid: Bool[Tensor, "B S"] | None) -> Tensor:
    return phi_k if valid is None else phi_k * valid[:, None, :, None]


def _asked(made: list[tuple[Tensor | None, Tensor | None]], leaves: Gradients) -> Gradients:
    """Gradients of the leaves, None where they need none, from those of what was made of them."""
    given = [(x, d) for x, d in made if x is not None and d is not None and x.requires_grad]
    asked = [x for x in leaves if x is not None and x.requires_grad]
    theirs = [d.view(x.shape).to(x.dtype) for x, d in given]
    found = iter(torch.autograd.grad([x for x, _ in given], asked, theirs, allow_unused=True))
    return [next(found) if x is not None and x.requires_grad else None for x in leaves]


@dataclass
class _Gradients:
    q: Tensor
    k: Tensor
    v: Tensor
    extra: Tensor | None
    rise: Tensor | None
    weights: list[Tensor | None]

    def queries(self, group: slice, rows: slice, found: Gradients) -> None:
        dq, *of_weights = found
        self._add(self.q[group, :, rows], dq, of_weights)

    def keys(self, group: slice, rows: slice, found: Gradients) -> None:
        dk, of_extra, *of_weights = found
        if self.extra is not None:
            self._add(self.extra[group, :, rows], of_extra, [])
        self._add(self.k[group, :, rows], dk, of_weights)

    def _add(self, place: Tensor, of_place: Tensor | None, of_weights: Gradients) -> None:
        assert of_place is not None, "a gradient of every input"
        place.copy_(of_place)
        for i, more in enumerate(of_weights):
            if more is not None:
                so_far = self.weights[i]
                self.weights[i] = more if so_far is None else so_far.add_(more)


class _Outputs(NamedTuple):
    y: Float[Tensor, "B H T V"]
    dy: Float[Tensor, "B H T V"]
    inverse: Float[Tensor, "B H T 1"]  # 1 / n(d), where d is the sum of a row's weights
    slope: Float[Tensor, "B H T 1"]  # -dn / dd

    @classmethod
    def of(cls, how: ScanRequest, y: Tensor, total: Tensor, dy: Tensor) -> "_Outputs":
        with torch.enable_grad():
            total = total.detach().requires_grad_()
            n = how.denominator(total)
        slope = torch.zeros_like(total)
        if n.requires_grad:
            (slope,) = torch.autograd.grad(n, total, torch.full_like(n, -1.0))
        return cls(y, dy, n.detach().reciprocal(), slope)

    def gradients(self, group: slice, rows: slice) -> Float[Tensor, "b t V+1"]:
        """Gradient of the sum of values and, in the last column, of the sum of weights."""
        y, dy, inverse, slope = (chunks.cut(x, group, rows) for x in self)
        both = dy.new_empty(*dy.shape[:2], dy.shape[2] + 1)
        torch.mul(dy, inverse.to(dy.dtype), out=both[..., :-1])
        torch.mul(
            (both[..., :-1] * y).sum(-1, keepdim=True), slope.to(dy.dtype), out=both[..., -1:]
        )
        return both
