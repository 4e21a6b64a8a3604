import pytest
import torch

from regard import Eager, Mask
from regard.functional.clustered.order import _sorted, band, chunks
from regard.functional.clustered.sorted_chunks import attend, weights
from regard.functional.clustered.top_k import first_equal_

T = 150


def parts():
    generator = torch.Generator().manual_seed(0)
    q, k, v, g = (
        torch.randn(2, 3, T, 8, generator=generator, dtype=torch.float64) for _ in range(4)
    )
    group = torch.randint(0, 5, (2, 3, 3, T), generator=generator)
    return [z.requires_grad_() for z in (q, k, v)], group, g


def masks():
    valid = torch.arange(T) < torch.tensor([[T], [T - 40]])
    pairwise = torch.rand(2, 1, T, T, generator=torch.Generator().manual_seed(1)) < 0.7
    return [Mask(), Mask(valid=valid), Mask(pairwise=pairwise), Mask(causal=True)]


@pytest.mark.parametrize("room", [1, 1 << 15, 1 << 17, 1 << 20])
@pytest.mark.parametrize("mask", masks(), ids=["open", "padded", "pairs", "causal"])
@pytest.mark.parametrize("kind", ["chunks", "band"])
def test_however_much_is_held_at_once_it_is_the_masked_softmax(room, mask, kind):
    """Parts of a row, whole rows, and many rows; outputs and gradients."""
    leaves, group, g = parts()
    order = (
        band(group, 40, tile=32) if kind == "band" else chunks(group, 16, after=1, same_group=False)
    )
    rules = {"order": order, "mask": mask, "exclude_self": True}
    y = attend(*leaves, **rules, impl=Eager(room=room))
    wanted = weights(*leaves[:2], **rules) @ leaves[2]
    torch.testing.assert_close(y, wanted, rtol=0, atol=1e-12)
    for ours, theirs in zip(
        torch.autograd.grad(y, leaves, g), torch.autograd.grad(wanted, leaves, g), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["chunks", "band"])
def test_scores_whose_exponentials_are_no_numbers(kind):
    leaves, group, g = parts()
    order = (
        band(group, 40, tile=32) if kind == "band" else chunks(group, 16, after=1, same_group=False)
    )
    rules = {"order": order, "exclude_self": True, "scale": 300.0}
    y = attend(*leaves, **rules)
    wanted = weights(*leaves[:2], **rules) @ leaves[2]
    torch.testing.assert_close(y, wanted, rtol=0, atol=1e-10)
    for ours, theirs in zip(
        torch.autograd.grad(y, leaves, g), torch.autograd.grad(wanted, leaves, g), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-8)


@pytest.mark.parametrize("highest", [7, 1 << 40])
def test_many_rows_are_sorted_as_one_by_one(highest):
    group = torch.randint(-3, highest, (2, 3, 2, 5000), generator=torch.Generator().manual_seed(0))
    ordered, source = _sorted(group)
    wanted, tokens = torch.sort(group, dim=-1, stable=True)
    assert torch.equal(source, tokens)
    same = ordered[..., 1:] == ordered[..., :-1]
    assert torch.equal(same, wanted[..., 1:] == wanted[..., :-1])


def test_the_first_of_equals_and_never_beyond_the_last():
    z = torch.tensor([[1.0, 3, 3], [2, 1, 0], [0, float("nan"), 0]])
    assert first_equal_(z.clone(), z.amax(-1, keepdim=True)).tolist() == [1, 0, 2]
