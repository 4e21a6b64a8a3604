"""The laws of a score: q [B H T K], k [B H S K] -> [B H T S]."""

from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor, nn

from regard.core import OptionError
from regard.testing.subject import Tensors, made, normal, require_same, results, seeded
from regard.testing.verdicts import (
    Checked,
    Judged,
    Laws,
    by_name,
    named,
    require,
    require_close,
    require_kept,
)

B = 2
H = 3
T = 5
S = 7
BOUND = 1e-10
Oracle = Callable[[Tensors, int, Tensor, Tensor, int], Tensor]


class ScoreSubject(Judged):
    def __init__(self, factory: Callable[[], nn.Module], oracle: Oracle | None):
        super().__init__()
        torch.manual_seed(0)
        self.score = made(factory, nn.Module).double().eval()
        self.oracle = oracle
        self.name = getattr(self.score, "name", type(self.score).__name__)
        width = getattr(self.score, "dim", None)
        if not isinstance(width, int):
            raise OptionError(f"{self.name} has no dim: the width of its queries and keys")
        self.q, self.k = normal(B, H, T + S, width).split((T, S), 2)

    @property
    def whole(self) -> Tensor:
        """The scores of all queries and keys."""
        return self.score(self.q, self.k)


def formula(subject: ScoreSubject) -> None:
    """Scores and gradients are those of one query and one key at a time: `oracle(params, head, q, k, position)`."""
    if not subject.oracle:
        return subject.cannot_judge("values: no oracle is given")
    q = subject.q.clone().requires_grad_()
    k = subject.k.clone().requires_grad_()
    params = {f"score.{name}": z for name, z in subject.score.named_parameters()}
    pairs = product(range(B), range(H), range(T), range(S))
    one_by_one = [subject.oracle(params, h, q[b, h, i], k[b, h, j], j) for b, h, i, j in pairs]
    expected = torch.stack(one_by_one).reshape(B, H, T, S)
    found, wanted = (results(subject.score, y, q=q, k=k) for y in (subject.score(q, k), expected))
    require_same(found, wanted, BOUND, "score")


def shapes(subject: ScoreSubject) -> None:
    """Any numbers of queries and keys, one included; a part of the queries gives its part of the scores."""
    whole = subject.whole
    require(whole.shape == (B, H, T, S), f"shape {list(whole.shape)}, not {[B, H, T, S]}")
    empty = subject.score(subject.q[:0], subject.k[:0])
    require(empty.shape == (0, H, T, S), f"an empty batch has shape {list(empty.shape)}")
    for t, s in ((1, S), (T, 1), (2, 3)):
        part = subject.score(subject.q[:, :, :t], subject.k[:, :, :s])
        require_close(part, whole[:, :, :t, :s], BOUND, f"{t} queries, {s} keys")


def steps(subject: ScoreSubject) -> None:
    """Prepared queries and keys of given positions give what the whole gives."""
    score = subject.score
    to = torch.randperm(S, generator=seeded(1))
    keys = score.keys(subject.k[:, :, to], to.expand(B, -1))
    found = score.pairs(score.queries(subject.q), keys)
    require_close(
        found, subject.whole[..., to], BOUND, "keys in another order, with their positions"
    )


def mask(subject: ScoreSubject) -> None:
    """A pair's score depends on its own query and key only, so that a masked pair is not felt."""
    whole = subject.whole
    q = subject.q.clone()
    k = subject.k.clone()
    q[:, :, 2:] *= -3
    k[:, :, 4:] = 30 * k[:, :, 4:] + 1
    same = subject.score(q, k)[:, :, :2, :4]
    require_close(same, whole[:, :, :2, :4], BOUND, "after a change of other queries and keys")


def gradient(subject: ScoreSubject) -> None:
    """Gradients are finite, at vectors of zero too."""
    for factor in (1.0, 0.0, 100.0):
        q, k = ((factor * z).requires_grad_() for z in (subject.q, subject.k))
        for name, found in results(subject.score, subject.score(q, k), q=q, k=k).items():
            require(found.isfinite().all(), f"{name} is not finite at scale {factor:g}")


SCORE_LAWS = by_name(formula, shapes, steps, mask, gradient)


def check_score(
    factory: Callable[[], nn.Module], laws: Laws = "all", *, oracle: Oracle | None = None
) -> Checked:
    """Run laws on the scores that `factory()` makes, with 3 heads, in float64.

    laws: "all", or names of SCORE_LAWS. oracle: `(params, head, q [K], k [K], position of k) -> number`, where params
    are called `score.NAME`. Raises LawError, whose text starts with the law's name.
    """
    return require_kept(ScoreSubject(factory, oracle), named(laws, SCORE_LAWS))
