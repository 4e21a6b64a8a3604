"""What no law covers: limit identities and independences of mechanisms without token-to-token scores."""

import pytest
import torch

from regard import Mask, build
from regard.functional.fourier import fourier_mixing
from regard.functional.synthesizer import Logits, outer, same
from regard.testing.subject import normal

B, T, D, H, N = 2, 13, 24, 3, 64


def test_fixed_random_synthesizer_learns_no_logits():
    mixer = build("synthesizer_random", dim=D, num_heads=H, max_len=N, trainable=False)
    assert {name for name, _ in mixer.named_parameters()} == {
        "values.value.weight",
        "values.out.weight",
    }


@pytest.mark.parametrize(("a", "b", "distinct"), [(4, 6, 12), (5, 7, 35)])
def test_same_tiling_reaches_the_least_common_multiple_of_pairs(a, b, distinct):
    left, right = torch.arange(1.0, a + 1), 100 ** torch.arange(1.0, b + 1)
    factors = [z.double()[None, None, None] for z in (left, right)]
    every, some = (Logits(form, tuple(factors))(slice(0, 1), a * b) for form in (outer, same))
    assert len(every.unique()) == a * b
    assert len(some.unique()) == distinct


@pytest.mark.parametrize("T, D", [(1, 1), (1, 6), (2, 1), (5, 4), (6, 5), (8, 8)])
def test_the_fourier_transform_is_over_both_axes(T, D):
    x = normal(2, T, D)
    torch.testing.assert_close(fourier_mixing(x), torch.fft.fft2(x).real, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [4093, 5000])
def test_long_rows_keep_their_digits(n):
    x = normal(1, 6000, 3)
    x[:, n:] = 0
    valid = torch.arange(6000)[None] < n
    y = fourier_mixing(x, mask=Mask(valid=valid, compact=True))[:, :n]
    plain = torch.fft.fft2(x[:, :n]).real
    assert (y - plain).abs().max() < 1e-12 * n**0.5 * plain.abs().max()


def test_gmlp_starts_as_a_feed_forward_layer():
    torch.manual_seed(0)
    mixer = build("gmlp", dim=D, max_len=N).double()
    x, other = normal(B, T, D), normal(B, T, D, seed=1)
    changed = x.clone()
    changed[:, 5] = other[:, 5]
    moved_by = (mixer(changed) - mixer(x)).abs().amax((0, 2))
    others = torch.arange(T) != 5
    assert moved_by[others].max() < 1e-3 * moved_by[5]
