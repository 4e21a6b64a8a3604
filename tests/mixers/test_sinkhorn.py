import pytest
import torch

from regard import Mask, build
from regard.functional import sinkhorn_attention, softmax_attention
from regard.functional.sinkhorn import balance


def parts(T=12):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 3, T, 8, generator=generator, dtype=torch.float64) for _ in range(3)]


def test_columns_sum_to_one_and_rows_do_after_many_iterations():
    logits = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0)).double()
    few, many = (balance(logits, num_iterations=n) for n in (2, 200))
    one = torch.ones(2, 3, 6, dtype=torch.float64)
    for S in (few, many):
        torch.testing.assert_close(S.sum(-2), one, rtol=0, atol=1e-12)
    torch.testing.assert_close(many.sum(-1), one, rtol=0, atol=1e-6)
    assert (few.sum(-1) - one).abs().max() > 1e-3


def test_absent_blocks_take_no_part_in_the_balance():
    logits = torch.randn(1, 1, 5, 5, generator=torch.Generator().manual_seed(0)).double()
    present = torch.tensor([[True, True, True, False, False]])
    S = balance(logits.requires_grad_(), present, num_iterations=7)
    alone = balance(logits[..., :3, :3], num_iterations=7)
    torch.testing.assert_close(S[..., :3, :3], alone, rtol=0, atol=1e-12)
    assert (S[..., 3:, :] == 0).all() and (S[..., 3:] == 0).all()
    S.sin().sum().backward()
    assert logits.grad.isfinite().all() and (logits.grad[..., 3:] == 0).all()


def block_mask(permutation, C, T):
    block = torch.arange(T) // C
    own = block[:, None] == block
    return own, torch.tensor(permutation)[block][:, None] == block


@pytest.mark.parametrize("join", ["joint", "separate"])
def test_sorting_by_a_permutation_is_attention_to_two_blocks(join):
    q, k, v = parts()
    permutation = [2, 0, 3, 1]
    S = torch.eye(4, dtype=torch.float64)[permutation].expand(2, 3, 4, 4)
    y = sinkhorn_attention(q, k, v, sorting=S, block_size=3, join=join)
    own, other = block_mask(permutation, 3, 12)
    if join == "joint":
        wanted = softmax_attention(q, k, v, mask=Mask(pairwise=(own | other)[None, None]))
    else:
        wanted = sum(
            softmax_attention(q, k, v, mask=Mask(pairwise=m[None, None])) for m in (own, other)
        )
    torch.testing.assert_close(y, wanted)


def test_noise_belongs_to_training():
    mixer = build("sinkhorn", dim=24, num_heads=3, max_len=64, block_size=4)
    x = torch.randn(1, 16, 24)
    assert torch.equal(mixer.eval()(x), mixer(x))
    assert not torch.equal(mixer.train()(x), mixer(x))


def test_the_sorting_network_is_trained():
    for causal in (False, True):
        mixer = build("sinkhorn", dim=24, num_heads=3, max_len=64, block_size=4)
        mixer(torch.randn(2, 16, 24), mask=Mask(causal=causal)).square().sum().backward()
        assert mixer.sort_net.out.weight.grad.abs().max() > 0
