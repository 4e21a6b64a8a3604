import math

import pytest
import torch

from regard import Mask, OptionError, UnsupportedError, build
from regard.functional.lsh import angular_hash


def reformer(**options):
    torch.manual_seed(0)
    return build("reformer", dim=24, num_heads=3, max_len=64, **options).double().eval()


def collision(angle: float, num_buckets: int, dim: int) -> float:
    """Chance that two vectors at this angle share a bucket of the cross-polytope hash, by sampling rotations."""
    x = torch.zeros(1, 1, 2, dim)
    x[..., 0, 0] = 1
    x[..., 1, :2] = torch.tensor([math.cos(angle), math.sin(angle)])
    rounds = 20000
    rotation = torch.randn(
        rounds, 1, dim, num_buckets // 2, generator=torch.Generator().manual_seed(3)
    )
    found = angular_hash(x, [rotation])[0, 0]
    return (found[:, 0] == found[:, 1]).double().mean().item()


@pytest.mark.parametrize("angle", [0.0, 0.2, 0.7, 1.5, math.pi / 2, 2.5, math.pi])
def test_two_buckets_collide_as_often_as_a_random_hyperplane_says(angle):
    """n_b = 2: sign of one projection, P = 1 - angle / pi (Goemans and Williamson 1995)."""
    assert collision(angle, 2, 8) == pytest.approx(1 - angle / math.pi, abs=0.015)


def test_collisions_of_many_buckets_follow_the_exact_integral():
    """n projections u, w of correlation c = cos(angle): P = 2 n E[ |w_1|-ball ], by quadrature over one pair."""
    n, angle = 4, 0.6
    grid = torch.linspace(-6, 6, 601, dtype=torch.float64)
    u, w = torch.meshgrid(grid, grid, indexing="ij")
    c, s = math.cos(angle), math.sin(angle)
    density = torch.exp(-(u * u - 2 * c * u * w + w * w) / (2 * s * s)) / (2 * math.pi * s)
    step = (grid[1] - grid[0]).item()
    rectangle = torch.zeros_like(density)  # mass of |u'| < u, |w'| < w
    cumulative = density.cumsum(0).cumsum(1) * step**2
    index = torch.arange(601)
    flip = 600 - index
    inside = (
        cumulative[index][:, index]
        - cumulative[flip][:, index]
        - cumulative[index][:, flip]
        + cumulative[flip][:, flip]
    )
    positive = (u > 0) & (w > 0)
    rectangle[positive] = inside[positive]
    wanted = 2 * n * (density * rectangle.clamp(min=0) ** (n - 1) * positive).sum().item() * step**2
    assert collision(angle, 2 * n, 16) == pytest.approx(wanted, abs=0.015)


def test_more_rounds_find_more_of_the_nearest_neighbours():
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 1, 256, 16, generator=generator)
    unit = torch.nn.functional.normalize(q, dim=-1)
    nearest = (unit @ unit.transpose(-1, -2) - 2 * torch.eye(256)).argmax(-1)[0, 0]
    rotation = torch.randn(8, 1, 16, 8, generator=generator)
    bucket = angular_hash(q, [rotation])[0, 0]
    together = bucket == bucket[:, nearest]
    recall = [together[:r].any(0).float().mean().item() for r in (1, 2, 4, 8)]
    assert recall == sorted(recall) and recall[3] > recall[0] + 0.3 > 0.4


def test_factors_multiply_and_are_independent():
    generator = torch.Generator().manual_seed(0)
    rotations = [torch.randn(1, 1, 16, n, generator=generator) for n in (2, 3)]
    bucket = angular_hash(torch.randn(1, 1, 4000, 16, generator=generator), rotations)
    assert bucket.unique().tolist() == list(range(24))


def test_full_shared_qk_attention_when_one_chunk_holds_everything():
    """The chunked form without the bucket test; the strict form with one bucket is a law."""
    ours = reformer(chunk_size=16, same_bucket_only=False, num_buckets=8)
    full = build("softmax", dim=24, num_heads=3, shared_qk=True).double()
    full.load_state_dict({k: v for k, v in ours.state_dict().items() if "rotations" not in k})
    x = torch.randn(2, 13, 24, dtype=torch.float64)
    torch.testing.assert_close(ours(x), full(x), rtol=0, atol=1e-12)


def test_rotations_come_from_the_seed_and_travel_with_the_model():
    one, two, other = (
        build("reformer", dim=8, num_heads=2, max_len=256, seed=s) for s in (5, 5, 6)
    )
    assert torch.equal(one.rotations_0, two.rotations_0)
    assert not torch.equal(one.rotations_0, other.rotations_0)
    assert "rotations_0" in one.state_dict()
    assert one.rotations_0.shape[-1] == 4  # 8 buckets: two for each chunk of 64 in max_len


def test_buckets_are_a_constant():
    with pytest.raises(OptionError, match="max_len"):
        build("reformer", dim=8, num_heads=2)
    with pytest.raises(OptionError, match="even"):
        build("reformer", dim=8, num_heads=2, num_buckets=3)


def test_the_published_causal_form_sees_the_past_alone_and_says_that_its_structure_leaks():
    mixer = reformer(published_causal=True, num_buckets=4, chunk_size=3)
    x = torch.randn(1, 13, 24, dtype=torch.float64)
    with pytest.raises(UnsupportedError, match="borders"):
        mixer(x, mask=Mask(causal=True))
    weights = mixer.attention_map(x)
    assert weights.triu(1).abs().max() == 0
    moved = x.clone()
    moved[:, 9:] = torch.randn(1, 4, 24, dtype=torch.float64)
    assert not torch.allclose(mixer(moved)[:, :9], mixer(x)[:, :9])  # the leak
