"""Kernel attention without a tensor of features of the whole sequence: features, sums and gradients of a piece at a time.

Causal: each piece reads and extends the state (S, z). Otherwise all keys are summed, piece by piece, and then all
queries read. The backward makes the features of a piece again and asks autograd for their gradients alone; those of
the sums are written out here and in `segments`, and go straight into their place in dq, dk and dv.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core.mask import Mask
from regard.functional import segments
from regard.functional.exponential import exp
from regard.functional.segments import Rows, added, put, token_bytes

Denominator = Callable[
    [Tensor], Tensor
]  # of the sum of a row's weights: what its values are divided by


class Keys(NamedTuple):
    phi: Float[Tensor, "B H S M"]
    log_decay: Float[Tensor, "B H S"] | None = None  # of the sums over earlier keys
    after: Float[Tensor, "B H"] | None = None  # what the features of later keys need to know


@dataclass(frozen=True)
class Features:
    """Features as functions, so that they can be made for some tokens at a time, and again.

    queries(q, *weights) -> phi_q.  keys(before, k, valid, extra, *weights) -> Keys of some tokens, where `before` is the
    `after` of the tokens before them, None at the start. The functions may hold no other tensor that needs a gradient.
    Where order does not matter, a decay means that all keys are taken as after the last, and `floor` is added to phi_k.
    `decays`: whether keys come with a decay.
    """

    width: int  # numbers in phi
    queries: Callable[..., Tensor]
    keys: Callable[..., Keys]
    floor: float = 0.0
    decays: bool = False


class How(NamedTuple):
    features: Features
    denominator: Denominator
    mask: Mask
    keep: bool  # whether there may be a backward


class PieceByPiece(torch.autograd.Function):
    @staticmethod
    def forward(ctx, how, q, k, v, extra, *weights):
        inputs = _Inputs(how, q, k, v, extra, weights)
        y = torch.empty_like(q if q.shape[2] != k.shape[2] and q.shape[3] == v.shape[3] else v)
        if y.shape[2] != q.shape[2]:
            y = v.new_empty(*q.shape[:3], v.shape[3])
        wide = torch.promote_types(v.dtype, torch.float32)
        total = q.new_empty(*q.shape[:3], 1, dtype=wide)
        go = _causally if how.mask.causal else _at_once
        ctx.steps, states = [], []
        for group in segments.examples(k, how.features.width):
            heads = (group.stop - group.start) * k.shape[1]
            S = q.new_zeros(heads, how.features.width, v.shape[3], dtype=wide)
            for step, *state in go(inputs, group, S, S.new_zeros(*S.shape[:2], 1), y, total):
                if how.keep:
                    ctx.steps.append(step)
                    states += state
        ctx.how, ctx.count = how, len(weights)
        ctx.save_for_backward(q, k, v, extra, y, total, *weights, *states)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        q, k, v, extra, y, total, *others = ctx.saved_tensors
        weights, states = others[: ctx.count], others[ctx.count :]
        inputs = _Inputs(ctx.how, q, k, v, extra, [w.detach().requires_grad_() for w in weights])
        outputs = _Outputs(ctx.how, y, total, dy)
        gradients = _Gradients(
            torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), None, [None] * ctx.count
        )
        if extra is not None:
            gradients.extra = torch.empty_like(extra)
        back = _causally_back if ctx.how.mask.causal else _at_once_back
        with torch.autocast("cpu", enabled=False):
            back(
                inputs,
                outputs,
                gradients,
                list(zip(ctx.steps, states[::2], states[1::2], strict=True)),
            )
        return None, gradients.q, gradients.k, gradients.v, gradients.extra, *gradients.weights


def _causally(inputs: "_Inputs", group: slice, S: Tensor, z: Tensor, y: Tensor, total: Tensor):
    before, pieces = None, Rows(y.shape[2], token_bytes(z))
    for rows in pieces:
        keys = inputs.keys(group, rows, before)
        if keys.log_decay is not None and segments.moves_far(keys.log_decay[..., 1:].sum(-1).neg()):
            pieces.halve(rows)
            continue
        yield (group, rows, before), S, z
        scale = _Scale.of(keys.log_decay)
        a, e = scale.queries(inputs.queries(group, rows)), scale.keys(keys.phi)
        found = segments.sums(a, e, inputs.values(group, rows), scale.state(S), scale.state(z))
        assert found.d is not None and found.z is not None, "sums with z come with d"
        _divide(inputs.how, found.y, found.d, group, rows, y, total)
        S, z, before = found.S, found.z, keys.after


def _causally_back(inputs: "_Inputs", outputs: "_Outputs", gradients: "_Gradients", steps: list):
    for (group, rows, before), S, z in reversed(steps):
        if rows.stop == outputs.y.shape[2]:
            dS, dz = torch.zeros_like(S), torch.zeros_like(z)
        with torch.enable_grad():
            piece = inputs.leaves(group, rows, rows)
            phi_q, keys = piece.queries(), piece.keys(before)
        scale = _Scale.of(None if keys.log_decay is None else keys.log_decay.detach())
        a, e = scale.queries(phi_q.detach()), scale.keys(keys.phi.detach())
        S, z = scale.state(S), scale.state(z)
        v = inputs.values(group, rows)
        of_sums = outputs.gradients(group, rows, v.dtype)
        found = segments.sums_backward(a, e, v, (S, z), of_sums, (dS, dz))
        assert found.z is not None, "sums with z come with its gradient"
        made = [(phi_q, scale.queries(found.a)), (keys.phi, scale.keys(found.e))]
        if keys.log_decay is not None and keys.log_decay.requires_grad:
            of_state = (found.S * S).sum((1, 2)) + (found.z * z).sum((1, 2))
            of_keys, of_queries = (found.e * e).sum(-1), (found.a * a).sum(-1)
            made.append((keys.log_decay, _decay_gradient(of_queries, of_keys, of_state)))
        piece.put(gradients, made)
        put(gradients.v, group, rows, found.v)
        dS, dz = scale.state(found.S), scale.state(found.z)


def _decay_gradient(
    of_queries: Float[Tensor, "b t"], of_keys: Float[Tensor, "b t"], of_state: Float[Tensor, "b"]
) -> Float[Tensor, "b t"]:
    """From gradients of the logs of factors e^(G_i - G_t), e^(G_t - G_j), e^(G_t), with G the running sum of log-decays."""
    G = of_queries - of_keys
    G[:, -1] += of_state - G.sum(1)
    return G.flip(1).cumsum(1).flip(1)


def _at_once(inputs: "_Inputs", group: slice, S: Tensor, z: Tensor, y: Tensor, total: Tensor):
    before, floor = None, inputs.how.features.floor
    for rows in Rows(inputs.k.shape[2], token_bytes(z)):
        keys = inputs.keys(group, rows, before)
        scale = _Scale.of(keys.log_decay)
        e, v = scale.keys(keys.phi), inputs.values(group, rows)
        S = added(scale.state(S), e.mT, v)
        z = scale.state(z) + e.sum(1, dtype=z.dtype)[..., None]
        before = keys.after
    if floor:
        one = inputs.present(group)
        S += floor * (one.mT @ segments.cut(inputs.v, group, slice(None)).to(S.dtype))
        z += floor * one.sum(1, keepdim=True)
    yield (group, None, before), S, z
    S, z = S.to(y.dtype), z.to(y.dtype)
    for rows in Rows(y.shape[2], token_bytes(z)):
        a = inputs.queries(group, rows).flatten(0, 1)
        _divide(inputs.how, a @ S, a @ z, group, rows, y, total)


def _at_once_back(inputs: "_Inputs", outputs: "_Outputs", gradients: "_Gradients", steps: list):
    for (group, _, before), S, z in steps:
        dS, dz = torch.zeros_like(S), torch.zeros_like(z)
        S, z = S.to(outputs.y.dtype), z.to(outputs.y.dtype)
        for rows in Rows(outputs.y.shape[2], token_bytes(z)):
            with torch.enable_grad():
                piece = inputs.leaves(group, rows, None)
                phi_q = piece.queries()
            dy, dd = outputs.gradients(group, rows, S.dtype)
            a = phi_q.detach().flatten(0, 1)
            piece.put(gradients, [(phi_q, (dy @ S.mT).addcmul_(dd, z.mT))])
            dS, dz = added(dS, a.mT, dy), added(dz, a.mT, dd)
        dS, dz = dS.to(S.dtype), dz.to(z.dtype)
        for rows in Rows(inputs.k.shape[2], token_bytes(z)):
            with torch.enable_grad():
                piece = inputs.leaves(group, None, rows)
                phi_k = piece.keys(before).phi
            e = phi_k.detach().flatten(0, 1)
            if floor := inputs.how.features.floor:
                e = e + floor * inputs.present(group)[:, rows].to(e.dtype)
            v = inputs.values(group, rows)
            piece.put(gradients, [(phi_k, (v @ dS.mT).add_(dz.mT))])
            put(gradients.v, group, rows, e @ dS)


def _divide(how: How, sums: Tensor, d: Tensor, group: slice, rows: slice, y: Tensor, total: Tensor):
    here, of = y[group, :, rows], total[group, :, rows]
    of.copy_(d.view(of.shape))
    torch.div(sums.view(here.shape), how.denominator(of), out=here)


class _Scale(NamedTuple):
    """Decays of a piece as factors of its features and of the state before it, all as at its end."""

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

    def queries(self, phi: Tensor) -> Float[Tensor, "b t M"]:
        phi = phi.flatten(0, -3)
        return phi if self.up is None else phi * self.up.to(phi.dtype)

    def keys(self, phi: Tensor) -> Float[Tensor, "b t M"]:
        phi = phi.flatten(0, -3)
        return phi if self.down is None else phi * self.down.to(phi.dtype)

    def state(self, S: Tensor) -> Tensor:
        return S if self.carry is None else S * self.carry


class _Inputs(NamedTuple):
    how: How
    q: Float[Tensor, "B H T K"]
    k: Float[Tensor, "B H S K"]
    v: Float[Tensor, "B H S V"]
    extra: Float[Tensor, "B H S"] | None
    weights: tuple[Tensor, ...] | list[Tensor]

    def leaves(self, group: slice, of_q: slice | None, of_k: slice | None) -> "_Leaves":
        q = None if of_q is None else self.q[group, :, of_q].detach().requires_grad_()
        k = None if of_k is None else self.k[group, :, of_k].detach().requires_grad_()
        extra = None
        if self.extra is not None and of_k is not None:
            extra = self.extra[group, :, of_k].detach().requires_grad_()
        return _Leaves(self, group, of_q, of_k, q, k, extra)

    def queries(self, group: slice, rows: slice) -> Tensor:
        return self.how.features.queries(self.q[group, :, rows], *self.weights)

    def keys(self, group: slice, rows: slice, before: Tensor | None) -> Keys:
        extra = None if self.extra is None else self.extra[group, :, rows]
        return self.keys_of(self.k[group, :, rows], extra, group, rows, before)

    def keys_of(self, k, extra, group: slice, rows: slice, before: Tensor | None) -> Keys:
        valid = self.how.mask.valid
        valid = None if valid is None else valid[group, rows]
        keys = self.how.features.keys(before, k, valid, extra, *self.weights)
        return keys._replace(phi=present(keys.phi, valid))

    def values(self, group: slice, rows: slice) -> Float[Tensor, "b t V"]:
        return segments.cut(self.v, group, rows)

    def present(self, group: slice) -> Float[Tensor, "b S 1"]:
        """One for every key that exists, zero for others."""
        valid, H, S = self.how.mask.valid, self.k.shape[1], self.k.shape[2]
        wide = torch.promote_types(self.k.dtype, torch.float32)
        if valid is None:
            return self.k.new_ones((group.stop - group.start) * H, S, 1, dtype=wide)
        return valid[group].repeat_interleave(H, 0)[..., None].to(wide)


def present(phi_k: Float[Tensor, "B H S M"], valid: Bool[Tensor, "B S"] | None) -> Tensor:
    return phi_k if valid is None else phi_k * valid[:, None, :, None]


class _Leaves(NamedTuple):
    """A piece of the inputs for which gradients of features are asked."""

    inputs: _Inputs
    group: slice
    of_q: slice | None
    of_k: slice | None
    q: Tensor | None
    k: Tensor | None
    extra: Tensor | None

    def queries(self) -> Tensor:
        return self.inputs.how.features.queries(self.q, *self.inputs.weights)

    def keys(self, before: Tensor | None) -> Keys:
        assert self.of_k is not None, "a piece with keys"
        return self.inputs.keys_of(self.k, self.extra, self.group, self.of_k, before)

    def put(self, gradients: "_Gradients", made: list[tuple[Tensor, Tensor]]) -> None:
        """Gradients of the leaves, from features and theirs."""
        leaves = [z for z in (self.q, self.k, self.extra) if z is not None] + list(
            self.inputs.weights
        )
        features = [phi for phi, _ in made]
        theirs = [d.view(phi.shape).to(phi.dtype) for phi, d in made]
        found = iter(torch.autograd.grad(features, leaves, theirs, allow_unused=True))
        for name, rows in (("q", self.of_q), ("k", self.of_k), ("extra", self.of_k)):
            if getattr(self, name) is not None:
                getattr(gradients, name)[self.group, :, rows] = next(found)
        for i, more in enumerate(found):
            if more is not None:
                so_far = gradients.weights[i]
                gradients.weights[i] = more if so_far is None else so_far.add_(more)


@dataclass
class _Gradients:
    q: Tensor
    k: Tensor
    v: Tensor
    extra: Tensor | None
    weights: list[Tensor | None]


class _Outputs(NamedTuple):
    how: How
    y: Float[Tensor, "B H T V"]
    total: Float[Tensor, "B H T 1"]
    dy: Float[Tensor, "B H T V"]

    def gradients(self, group: slice, rows: slice, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Of the sum of values and of the sum of weights."""
        y, dy = (segments.cut(x, group, rows) for x in (self.y, self.dy))
        with torch.enable_grad():
            total = self.total[group, :, rows].detach().requires_grad_()
            of = self.how.denominator(total)
        dsum = dy / of.detach().flatten(0, 1).to(dtype)
        dd = -(dsum * y).sum(-1, keepdim=True)
        if of.requires_grad:
            (slope,) = torch.autograd.grad(of, total, torch.ones_like(of))
            return dsum, dd * slope.flatten(0, 1).to(dtype)
        return dsum, torch.zeros_like(dd)
