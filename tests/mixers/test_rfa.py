from dataclasses import replace

import torch

from regard import Mask, build

CAUSAL = Mask(causal=True)


def make(**options):
    return build("rfa", dim=24, num_heads=3, **options)


def test_training_draws_from_the_pool_without_replacement_and_evaluation_takes_the_first():
    mixer = make(pool_size=5)
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


def test_segments_with_memory_are_one_sequence_and_may_be_detached():
    mixer = make(gate=True).double()
    x = torch.randn(2, 300, 24, dtype=torch.float64)
    whole = mixer(x, mask=CAUSAL)
    state, outputs = mixer.initial_state(2), []
    for segment in x.split(100, dim=1):
        y, state = mixer.extend(segment, state)
        outputs.append(y)
        state = replace(state, S=state.S.detach(), z=state.z.detach())
    torch.testing.assert_close(torch.cat(outputs, dim=1), whole, rtol=1e-10, atol=1e-10)
    outputs[-1].sum().backward()
    assert torch.isfinite(mixer.gate.weight.grad).all()
