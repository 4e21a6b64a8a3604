import torch

from regard import Mask, build
from regard.testing.laws.streaming import feed


def test_a_bfloat16_stream_follows_the_forward():
    mixer = build("efficient", dim=24, num_heads=3).bfloat16()
    x = torch.randn(2, 60, 24).bfloat16()
    streamed, _ = feed(mixer, x, mixer.initial_state(2), [1] * 60)
    y = mixer(x, mask=Mask(causal=True))
    assert (streamed - y).float().norm() < 0.03 * y.float().norm()
