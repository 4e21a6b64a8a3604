import torch

from regard import Mask, build

CAUSAL = Mask(causal=True)


def make(**options):
    return build("efficient", dim=24, num_heads=3, **options)


def test_a_bfloat16_stream_follows_the_forward():
    mixer = make().bfloat16()
    x = torch.randn(2, 60, 24).bfloat16()
    state, outputs = mixer.initial_state(2), []
    for token in x.split(1, dim=1):
        y, state = mixer.extend(token, state)
        outputs.append(y)
    y = mixer(x, mask=CAUSAL)
    assert (torch.cat(outputs, dim=1) - y).float().norm() < 0.03 * y.float().norm()
