from functools import partial
from itertools import pairwise

import pytest
import torch

from regard import Mask, build
from regard.functional import favor_attention
from regard.functional.features import gaussian_rows

CAUSAL = Mask(causal=True)
make = partial(build, "performer", dim=24, num_heads=3, num_features=16)


@pytest.mark.parametrize("every, kept", [(3, 2 * [True, True, False]), (None, 6 * [True])])
def test_the_matrix_is_redrawn_on_schedule_and_only_then(every, kept):
    mixer, drawn = make(redraw_every=every), []
    for _ in range(7):
        drawn.append(mixer.projection.w.clone())
        mixer.after_step()
    assert [torch.equal(a, b) for a, b in pairwise(drawn)] == kept


@pytest.mark.parametrize(
    "name, options", [("performer", {"redraw_every": 2}), ("rfa", {"pool_size": 9})]
)
def test_a_run_that_goes_on_from_a_checkpoint_draws_the_same(name, options):
    mixer, other = (build(name, dim=24, num_heads=3, **options) for _ in range(2))
    mixer.after_step()
    other.load_state_dict(mixer.state_dict())
    for one in (mixer, other):
        torch.randn(5)  # the global generator has no say
        one.after_step()
    torch.testing.assert_close(other.state_dict(), mixer.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("outlier", [0, 3, 140, 199])
def test_outliers_stay_finite_and_leave_the_rest_alone(causal, outlier):
    """A key of size 1000 has no weight in float32, wherever it stands; the others keep theirs to float32's precision."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 200, 8, generator=generator) for _ in range(3))
    k[:, :, outlier] *= 1000 / k[:, :, outlier].norm(dim=-1, keepdim=True)
    w = gaussian_rows(32, 8, orthogonal=True, generator=generator).float()[None]
    q, k, v = (t.requires_grad_() for t in (q, k, v))
    y = favor_attention(q, k, v, w, mask=Mask(causal=causal))
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(y.square().sum(), [q, k, v]))
    exact = favor_attention(*(t.double() for t in (q, k, v, w)), mask=Mask(causal=causal))
    torch.testing.assert_close(y.double(), exact, rtol=0, atol=2e-4)
    assert torch.isfinite(favor_attention(1000 * q, 1000 * k, 1000 * v, w, mask=CAUSAL)).all()


def test_a_kernel_of_ones_own_approximates_nothing():
    assert make(features=torch.square).capabilities.approximates is None
