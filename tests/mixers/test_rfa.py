import torch

from regard import build


def test_training_draws_from_the_pool_without_replacement_and_evaluation_takes_the_first():
    mixer = build("rfa", dim=24, num_heads=3, pool_size=5)
    seen = set()
    for _ in range(30):
        mixer.after_step()
        drawn = mixer.drawn.tolist()
        assert len(set(drawn)) == 3 and set(drawn) <= set(range(5))
        seen |= set(drawn)
    assert seen == set(range(5))
    x = torch.randn(2, 7, 24)
    mixer.eval()
    y = mixer(x)
    mixer.after_step()
    assert torch.equal(mixer(x), y)
    first = mixer.train().drawn.copy_(torch.arange(3))
    assert first.tolist() == [0, 1, 2] and torch.equal(mixer(x), y)
