"""A learned blend of logits (Synthesizer mixtures, Tay et al. 2020, arXiv 2005.00743).

    B = sum_m a_m B_m,   a = softmax(learned numbers, one per member and head),   y = concat_h( softmax(B_h) v_h ) W_out

`members`: the Synthesizer forms by their catalogue names, `fixed_patterns` (those that look back, one per head, as
log(P + 2^-10)), `softmax` (the scaled dot product) and every other score of SCORES by its name; members have the options
that are their defaults, and share values. The blend is the uniform one at the start, is made before mask and softmax, and
depends on no input. By default R + V, the paper's best. Cost: the members' together; T^2 per head at least.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core import Mixer, No, Observation, OptionError, UnknownNameError
from regard.core.states import Streamed, as_state
from regard.functional.cache import columns, put
from regard.functional.rows import Impl, check_impl
from regard.functional.synthesizer import (
    Logits,
    blended,
    synthesizer_attention,
    synthesizer_weights,
)
from regard.mixers._capabilities import ALL
from regard.nn.heads import Values
from regard.nn.logits import (
    DenseLogits,
    FactorizedDenseLogits,
    FactorizedRandomLogits,
    FixedPatternLogits,
    PairLogits,
    RandomLogits,
    near_square,
)
from regard.nn.scores import SCORES


@as_state
class State(Streamed):
    k: Float[Tensor, "B H _ A"]  # prepared keys of all scores, side by side; none without scores
    v: Float[Tensor, "B H C V"]
    length: Int[Tensor, "B"]


class Mixture(Mixer):
    __doc__ = __doc__
    name = "mixture"
    family = "score-free"
    paper = "Tay et al. 2020, arXiv 2005.00743"
    capabilities = replace(
        ALL,
        cross=No("its synthetic members make weights for positions of one sequence"),
        any_length=No("its synthetic members have weights for max_len positions"),
    )
    variants = {
        "synthetic": {"members": ("synthesizer_dense", "synthesizer_random")},
        "factorized": {
            "members": ("synthesizer_factorized_dense", "synthesizer_factorized_random")
        },
        "scores": {"members": ("cosine", "location", "additive")},
        "patterns": {"members": ("fixed_patterns", "softmax")},
    }

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        max_len: int | None = None,
        members: Sequence[str] = ("softmax", "synthesizer_random"),
        impl: Impl = "auto",
    ):
        super().__init__(dim, max_len=max_len)
        self.impl = check_impl(self.name, impl, "synthesizer")
        self.num_heads = num_heads
        self.values = Values(dim, num_heads)
        names = tuple(members)
        if not names or len(set(names)) < len(names):
            raise OptionError(
                f"mixture: members must be different names, at least one, got {names}"
            )
        known = [*_SYNTHETIC, "fixed_patterns", "softmax", *SCORES.names()]
        for name in names:
            if name not in known:
                raise UnknownNameError("member of mixture", name, known)
        bound = [name for name in names if name in _SYNTHETIC or name == "location"]
        if bound and max_len is None:
            raise OptionError(f"mixture: {' and '.join(bound)} need max_len: pass max_len=")
        if not bound:
            self.declare(any_length=True)
        self.members = nn.ModuleDict(
            {name: _member(name, dim, num_heads, max_len) for name in names}
        )
        self.blend = nn.Parameter(torch.empty(len(names), num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.blend)

    def mix(self, x, context, mask):
        T, v = x.shape[1], self.values.split(x)
        mixed = synthesizer_attention(self._logits(x), v, T=T, mask=mask, impl=self.impl)
        return self.values.merge(mixed)

    def _logits(self, x: Float[Tensor, "B T D"]) -> Logits:
        parts = [
            member(x, member.keys(x)) if isinstance(member, PairLogits) else member(x)
            for member in self.members.values()
        ]
        return blended(self.blend.softmax(0), parts)

    def _scores(self) -> list[tuple[str, PairLogits]]:
        return [
            (name, member)
            for name, member in self.members.items()
            if isinstance(member, PairLogits)
        ]

    def _initial_state(self, batch_size, max_len, context, valid):
        weight, K = self.values.value.weight, self.values.head_dim
        v = weight.new_zeros(batch_size, self.num_heads, max_len or 0, K)
        one = weight.new_zeros(1, 1, self.dim)
        A = sum(member.keys(one).shape[3] for _, member in self._scores())
        length = torch.zeros(batch_size, dtype=torch.long, device=weight.device)
        return State(v.new_zeros(*v.shape[:3], A), v, length)

    def _extend(self, x, state, valid, donate):
        T, at = x.shape[1], columns(state, valid, x.shape[1], state.v, donate)
        v = put(state.v, self.values.split(x), at, donate)
        k, keys = state.k, {}
        if self._scores():
            new_k = {name: member.keys(x, at.query) for name, member in self._scores()}
            k = put(state.k, torch.cat(list(new_k.values()), dim=-1), at, donate)
            widths = [a.shape[3] for a in new_k.values()]
            keys = dict(zip(new_k, k.split(widths, dim=-1), strict=True))

        if self.max_len is not None:  # a store may have more columns
            at = at._replace(seen=min(at.seen, self.max_len))
        position = at.query.clamp_min(0)
        parts = [member(x, keys.get(name, position)) for name, member in self.members.items()]
        logits, seen = blended(self.blend.softmax(0), parts), v[:, :, : at.seen]
        mixed = synthesizer_attention(logits, seen, T=T, mask=at.mask, impl=self.impl)
        return self.values.merge(mixed), State(k, v, at.length)

    def _observe(self, x, context, mask):
        T, v = x.shape[1], self.values.split(x)
        weights = synthesizer_weights(self._logits(x), T, T, mask=mask, device=x.device)
        weights = weights.to(v.dtype).expand(*v.shape[:2], -1, -1)
        return Observation(v=v, weights=weights, heads=weights @ v)


def _member(name: str, dim: int, num_heads: int, max_len: int | None) -> nn.Module:
    if name in _SYNTHETIC:
        return _SYNTHETIC[name](dim, num_heads, max_len)
    if name == "fixed_patterns":
        return FixedPatternLogits(num_heads)
    return PairLogits("scaled_dot" if name == "softmax" else name, dim, num_heads, max_len)


_SYNTHETIC = {
    "synthesizer_dense": lambda D, H, N: DenseLogits(D, H, N, hidden=D // H),
    "synthesizer_random": lambda D, H, N: RandomLogits(H, N),
    "synthesizer_factorized_dense": lambda D, H, N: FactorizedDenseLogits(
        D, H, hidden=D // H, factors=near_square(N)
    ),
    "synthesizer_factorized_random": lambda D, H, N: FactorizedRandomLogits(H, N, rank=8),
}
