import math

import pytest
import torch
import torch.nn.functional as F

import regard
from regard.nn import smoothed_cross_entropy

V = 7


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 5, V, dtype=torch.float64, generator=generator)
    labels = torch.randint(0, V, (2, 5), generator=generator)
    labels[0, 3:] = -100
    return logits.requires_grad_(), labels


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5, 1.0])
def test_over_all_is_torchs(smoothing):
    logits, labels = batch()
    ours = smoothed_cross_entropy(logits, labels, smoothing=smoothing)
    theirs = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    (a,), (b,) = torch.autograd.grad(ours, logits), torch.autograd.grad(theirs, logits)
    torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("subtract_entropy", [False, True])
@pytest.mark.parametrize("over", ["all", "others"])
def test_is_the_sum_over_the_smoothed_labels(over, subtract_entropy):
    logits, labels = batch()
    total, count = 0.0, 0
    for row, label in zip(logits.flatten(0, 1), labels.flatten().tolist(), strict=True):
        if label == -100:
            continue
        for v, log_p in enumerate(row.log_softmax(-1).tolist()):
            q = 0.9 * (v == label) + 0.1 / V
            if over == "others":
                q = 0.9 if v == label else 0.1 / (V - 1)
            total -= q * (log_p - (math.log(q) if subtract_entropy else 0))
        count += 1
    loss = smoothed_cross_entropy(logits, labels, over=over, subtract_entropy=subtract_entropy)
    assert math.isclose(loss.detach(), total / count, abs_tol=1e-12)


@pytest.mark.parametrize("over", ["all", "others"])
def test_least_loss_is_zero_without_the_entropy(over):
    label = torch.tensor([2])
    q = torch.full((1, V), 0.1 / V if over == "all" else 0.1 / (V - 1), dtype=torch.float64)
    q[0, 2] = 1 - q[0, :2].sum() - q[0, 3:].sum()
    loss = smoothed_cross_entropy(q.log(), label, over=over, subtract_entropy=True)
    assert abs(float(loss)) < 1e-12


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


def test_compiles_whole():
    logits, labels = batch()
    compiled = torch.compile(smoothed_cross_entropy, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(logits, labels), smoothed_cross_entropy(logits, labels))


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
