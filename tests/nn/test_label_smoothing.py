import math

import pytest
import torch

import regard
from regard.nn import smoothed_cross_entropy

V = 7


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 5, V, dtype=torch.float64, generator=generator)
    labels = torch.randint(0, V, (2, 5), generator=generator)
    labels[0, 3:] = -100
    return logits.requires_grad_(), labels


@pytest.mark.parametrize("subtract_entropy", [False, True])
@pytest.mark.parametrize("over", ["all", "others"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_is_the_sum_over_the_smoothed_labels(over, subtract_entropy, smoothing):
    logits, labels = batch()
    rest = smoothing / (V if over == "all" else V - 1)
    total, count = 0.0, 0
    for row, label in zip(logits.flatten(0, 1), labels.flatten().tolist(), strict=True):
        if label == -100:
            continue
        for v, log_p in enumerate(row.log_softmax(-1).tolist()):
            q = rest + (1 - smoothing if over == "all" else 1 - smoothing - rest) * (v == label)
            total -= q * (log_p - (math.log(q) if subtract_entropy and q else 0))
        count += 1
    options = {"smoothing": smoothing, "over": over, "subtract_entropy": subtract_entropy}
    loss = smoothed_cross_entropy(logits, labels, **options)
    assert math.isclose(loss.detach(), total / count, abs_tol=1e-12)


def test_ignored_tokens_give_nothing_not_even_nan():
    logits, labels = batch()
    poisoned = logits.detach().clone()
    poisoned[0, 3:] = torch.nan
    poisoned.requires_grad_()
    loss = smoothed_cross_entropy(poisoned, labels)
    torch.testing.assert_close(loss, smoothed_cross_entropy(logits, labels))
    loss.backward()
    assert poisoned.grad.isfinite().all() and not poisoned.grad[0, 3:].any()
    assert smoothed_cross_entropy(logits, torch.full_like(labels, -100)) == 0


@pytest.mark.parametrize(
    "change, error, said",
    [
        ({"smoothing": 1.5}, regard.OptionError, "smoothing"),
        ({"over": "some"}, regard.OptionError, "over"),
        ({"labels": torch.zeros(5, 2)}, regard.ShapeError, r"need labels \[2, 5\], got \[5, 2\]"),
    ],
)
def test_bad_requests_are_named(change, error, said):
    logits, labels = batch()
    with pytest.raises(error, match=said):
        smoothed_cross_entropy(**{"logits": logits, "labels": labels, **change})
