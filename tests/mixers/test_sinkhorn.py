import torch

from regard import build
from regard.functional.sinkhorn import balance


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


def test_noise_belongs_to_training():
    mixer = build("sinkhorn", dim=24, num_heads=3, max_len=64, block_size=4)
    x = torch.randn(1, 16, 24)
    assert torch.equal(mixer.eval()(x), mixer(x))
    assert not torch.equal(mixer.train()(x), mixer(x))
