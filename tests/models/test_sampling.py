import math

import pytest
import torch

from regard.models.generation import Sampling, restrict


def slow_restrict(logits, top_k, top_p):
    kept = []
    for row in logits.tolist():
        order = sorted(range(len(row)), key=lambda i: (-row[i], i))
        order = order[: top_k or len(row)]
        if top_p is not None:
            total = sum(math.exp(row[i]) for i in order)
            held, few = 0.0, []
            for i in order:
                few.append(i)
                held += math.exp(row[i]) / total
                if held >= top_p:
                    break
            order = few
        kept.append([i in order for i in range(len(row))])
    return torch.tensor(kept)


@pytest.mark.parametrize("top_k", [None, 1, 3, 11, 50])
@pytest.mark.parametrize("top_p", [None, 1e-6, 0.35, 0.9, 0.999])
def test_restriction_is_the_slow_one(top_k, top_p):
    logits = 2 * torch.randn(20, 11, generator=torch.Generator().manual_seed(0))
    logits[3:6] = logits[3:6].round()  # ties
    fast = restrict(logits, top_k, top_p)
    kept = slow_restrict(logits, top_k, top_p)
    assert torch.equal(fast > -math.inf, kept)
    assert torch.equal(fast[kept], logits[kept])


def test_draws_follow_the_tempered_restricted_softmax():
    logits = torch.tensor([[2.0, 1.0, 0.5, -1.0, 1.5]])
    many = logits.expand(20000, 5)
    sampling = Sampling(0.7, top_k=3, generator=torch.Generator().manual_seed(0))
    drawn = sampling.draw(many)
    share = drawn.bincount(minlength=5) / 20000
    wanted = (torch.tensor([2.0, 1.0, -math.inf, -math.inf, 1.5]) / 0.7).softmax(0)
    assert (share - wanted).abs().max() < 0.015
    assert share[2] == share[3] == 0


def test_greedy_takes_the_most_likely():
    logits = torch.randn(9, 7)
    assert torch.equal(Sampling().draw(logits), logits.argmax(-1))
