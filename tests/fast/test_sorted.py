import pytest
import torch

from regard.core import OPEN, Mask
from regard.fast.cpu.sorted import attend
from regard.functional import lsh_attention
from regard.functional.rows import Form
from regard.functional.sorted import _dense, chunks, last_of_group
from regard.testing.counting import count
from regard.testing.subject import normal

T = 150


def parts():
    q, k, v, g = normal(4, 2, 3, T, 8)
    group = torch.randint(0, 5, (2, 3, 3, T), generator=torch.Generator().manual_seed(0))
    return [z.requires_grad_() for z in (q, k, v)], group, g


def dense(q, k, v, *, group, window, exclude_self, mask=OPEN, scale=None):
    """The masked softmax as one matrix."""
    rules = group, window, mask, scale, exclude_self, True
    return _dense(q, k, slice(0, T), *rules) @ v


def assert_same(leaves, g, form, rules, *, atol, of_gradients):
    ours, wanted = attend(*leaves, **rules, form=form), dense(*leaves, **rules)
    torch.testing.assert_close(ours, wanted, rtol=0, atol=atol)
    found, expected = (torch.autograd.grad(y, leaves, g) for y in (ours, wanted))
    torch.testing.assert_close(found, expected, rtol=0, atol=of_gradients)


@pytest.mark.parametrize("room", [1, 1 << 15, 1 << 17, 1 << 20])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", ["chunks", "last"])
def test_however_much_is_held_at_once_it_is_the_masked_softmax(room, padded, kind):
    leaves, group, g = parts()
    valid = torch.arange(T) < torch.tensor([[T], [T - 40]])
    mask = Mask(causal=kind == "last", valid=valid if padded else None)
    window = last_of_group(40) if kind == "last" else chunks(16, after=1, same_group=False)
    rules = {"group": group, "window": window, "mask": mask, "exclude_self": True}
    assert_same(leaves, g, Form(room=room), rules, atol=1e-12, of_gradients=1e-12)


@pytest.mark.parametrize("kind", ["chunks", "last"])
def test_scores_whose_exponentials_are_no_numbers(kind):
    leaves, group, g = parts()
    window = last_of_group(40) if kind == "last" else chunks(16, after=1, same_group=False)
    rules = {"group": group, "window": window, "exclude_self": True, "scale": 300.0}
    assert_same(leaves, g, Form(), rules, atol=1e-10, of_gradients=1e-8)


def test_no_pairs_are_stored_for_the_backward_pass():
    q = torch.zeros(1, 2, 4096, 16, requires_grad=True)
    buckets = torch.zeros(1, 2, 2, 4096, dtype=torch.long)

    def train():
        y = lsh_attention(q, q, q, buckets=buckets, chunk_size=64, mask=Mask(causal=True))
        y.sum().backward()

    pairs = 2 * 2 * 4096 * 128 * 4  # float32 scores of all rounds
    assert count(train).peak_bytes < 2 * pairs
