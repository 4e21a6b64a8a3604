"""Luong's local attention: a window around a position that is given or predicted (Luong et al. 2015, arXiv 1508.04025).

    y_t = sum_j a_t(j) v_j,   a_t = softmax of score(q_t, k_j) over the window p_t - D_w .. p_t + D_w

"monotonic" (local-m): p_t = t, at most M - 1. "predictive" (local-p): p_t = M sigmoid(v_p . tanh(W_p q_t)), the window
lies around floor(p_t), and weights are multiplied by exp(-(j - p_t)^2 / (2 sigma^2)), sigma = D_w / 2, without being
divided by their sum again (`renormalise`: with it). M is the number of valid keys; `window_size` = D_w counts ONE side.

The gradient reaches p_t through the Gaussian alone, as in the paper; rounding may move a predicted window by one key.
Not in the paper: several heads, each with its own window where that is predicted; self use. Causal: p_t is the last key
that the query may see, and the window lies behind it. `score` is any of SCORES, which has parameters of each head also where `num_kv_heads` (arXiv 2305.13245) are fewer, and need not be a
product: no rotary positions. Cost: T (2 D_w + 1) (K + V) per head.
State: the last D_w keys and values.

Args:
    window_size: tokens seen on each side of a query
    alignment: centre of a query's window: its own index, or one that it predicts
    score: score, of `regard ls scores` or a class
    score_options: options of the score
    renormalise: True: weights are divided by their sum after the Gaussian
"""

from typing import Literal

import torch
from torch import Tensor

from regard.core import OPEN, Mask, No, OptionError, Positions
from regard.functional.cache import advance, place
from regard.functional.held import as_now
from regard.functional.rows import Impl, pick, upto, wide_type
from regard.functional.scored import Windows, dot_product, luong_attention
from regard.mixers._base import ALL, HeadsMixer, Options
from regard.mixers._cached import CachedMixer, State
from regard.nn.scores import Score, build_score
from regard.nn.starts import glorot_matrices, uniform, unset


class LuongLocal(CachedMixer, HeadsMixer):
    __doc__ = __doc__
    name = "luong_local"
    family = "banded"
    paper = "Luong et al. 2015, arXiv 1508.04025"
    capabilities = ALL.but(
        global_tokens=No(
            "its weights are defined inside one window for each query, which global tokens would leave"
        ),
        time="T W H K",
        state="W H K",
        exchange="halo",
    )
    variants = {
        "narrow": {"window_size": 2, "num_kv_heads": 1},
        "additive": {"window_size": 3, "score": "additive"},
        "predictive": {"window_size": 4, "alignment": "predictive"},
        "renormalised": {
            "window_size": 4,
            "alignment": "predictive",
            "renormalise": True,
            "score": "scaled_dot",
        },
    }
    limits = {"scored": ({"window_size": 64}, {"score": "general"})}

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        max_len: int | None = None,
        window_size: int = 10,
        alignment: Literal["monotonic", "predictive"] = "monotonic",
        score: str | type[Score] = "general",
        score_options: Options | None = None,
        renormalise: bool = False,
        num_kv_heads: int | None = None,
        impl: Impl = "auto",
    ):
        super().__init__(dim, num_heads, num_kv_heads, impl, max_len=max_len)
        if renormalise and alignment == "monotonic":
            raise OptionError(
                "luong_local: renormalise needs alignment='predictive': other weights have sum 1 already"
            )
        self.window_size = self.reach = window_size
        self.renormalise = renormalise
        K = self.heads.head_dim
        self.score = build_score(
            score, K, num_heads=num_heads, max_len=max_len, options=score_options
        )
        self.predictive = alignment == "predictive"
        if self.predictive:
            self.W_p = unset(num_heads, K, K)
            self.v_p = unset(num_heads, K)
            why = "its window is placed by the number of all keys"
            causal, streaming = No(why), No(f"it has no causal form: {why}")
            self.declare(causal=causal, streaming=streaming, exchange=causal)
        if self.score.max_len is not None:
            self.max_len = self.score.max_len
            bound = No(f"{self.score.name} scores are one for each of max_len positions")
            self.declare(any_length=bound, exchange=bound)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.predictive:
            glorot_matrices(self.W_p)
            uniform(self.v_p, self.heads.head_dim)

    def _split(self, x, context, at=None):
        q, k, v = self.heads.split(x, context, None if at is None else at[:, 0])
        return q, self.score.keys(k, at if context is None else None), v

    def mix(self, x, context, mask):
        q, k, v = self._split(x, context)
        return self.heads.merge(self._attend(q, k, v, mask))

    def _attend(self, q, k, v, mask, query=None, key=None, windows: Windows | None = None):
        return luong_attention(
            self.score.queries(q),
            k,
            v,
            pairs=dot_product if self.score.product else as_now(self.score).pairs,
            windows=windows or self._windows(q, k, mask, query),
            renormalise=self.renormalise,
            pairwise=mask.pairwise,
            impl=self.impl,
        )

    def _windows(self, q: Tensor, k: Tensor, mask: Mask, query: Positions | None = None) -> Windows:
        T = q.shape[2]
        S = k.shape[2]
        D_w = self.window_size
        if mask.causal:
            last = mask.last_key(T, S, q.device)
            return Windows((last - D_w)[:, None], D_w + 1, last)
        count = torch.full((1,), S, device=q.device) if mask.valid is None else mask.valid.sum(1)
        final = (count - 1)[:, None]
        middle = (upto(T, q)[None] if query is None else query)[:, None]
        p = None
        if self.predictive:
            share = (torch.tanh(q @ self.W_p.mT) @ self.v_p[..., None])[..., 0]
            share = share.to(wide_type(q))  # bfloat16 cannot count to 1000
            p = count[:, None, None] * share.sigmoid()
            middle = p.detach().floor().long()
        start = torch.minimum(middle, final[:, None]) - D_w
        return Windows(start, 2 * D_w + 1, final.expand(-1, T), centre=p, sigma=D_w / 2)

    def _plan(self, x, context, mask):
        if not self.predictive:
            return None
        q, k, _ = self._split(x, context)
        return {"window": self._windows(q, k, mask).start + self.window_size}

    def _start(self, length, max_len):
        return super()._start(length, self.window_size)

    def _step(self, x, state, valid, donate):
        N, D_w = x.shape[1], self.window_size
        q, *new = self._split(x, None, place(state.length, valid, N))
        k, v = (torch.cat(z, 2) for z in zip((state.k, state.v), new, strict=True))
        start = upto(N, x)[None]  # column c: the token at length - D_w + c
        windows = Windows(start[:, None], D_w + 1, start + D_w, low=D_w - state.length)
        y = self._attend(q, k, v, OPEN, windows=windows)
        length = advance(state.length, valid, N)
        last = (length - state.length)[:, None] + upto(D_w, x)
        k, v = (pick(z, last) for z in (k, v))
        return y, State(k, v, length)
