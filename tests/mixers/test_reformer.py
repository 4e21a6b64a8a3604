import pytest
import torch

from regard import Mask, UnsupportedError, build
from regard.functional.lsh import angular_hash


def test_a_bucket_is_the_largest_of_the_projections_and_their_opposites_and_factors_multiply():
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 1, 4000, 16, generator=generator)
    rotations = [torch.randn(1, 1, 16, n, generator=generator) for n in (1, 2, 3)]
    a, b, c = (torch.cat([z, -z], -1).argmax(-1) for z in (q @ rotation for rotation in rotations))
    found = [angular_hash(q, some)[0, 0, 0] for some in (rotations[:1], rotations[1:])]
    assert torch.equal(found[0], a[0, 0])
    pairs = torch.stack([found[1], b[0, 0], c[0, 0]], dim=1).unique(dim=0)
    assert pairs[:, 0].tolist() == list(range(24)) and len(pairs) == 24


def test_rotations_come_from_the_seed_and_travel_with_the_model():
    one, two, other = (
        build("reformer", dim=8, num_heads=2, max_len=256, seed=s) for s in (5, 5, 6)
    )
    assert torch.equal(one.rotations_0, two.rotations_0)
    assert not torch.equal(one.rotations_0, other.rotations_0)
    assert "rotations_0" in one.state_dict()
    assert one.rotations_0.shape[-1] == 4  # 8 buckets: two for each chunk of 64 in max_len


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("reformer", {"num_buckets": 4, "chunk_size": 3}, "borders"),
        ("routing", {"num_clusters": 3, "window_size": 4}, "later tokens"),
    ],
)
def test_a_published_causal_form_sees_the_past_alone_and_says_that_its_structure_leaks(
    name, options, words
):
    torch.manual_seed(0)
    mixer = build(name, dim=24, num_heads=3, max_len=64, published_causal=True, **options)
    mixer = mixer.double().eval()
    x = torch.randn(1, 13, 24, dtype=torch.float64)
    with pytest.raises(UnsupportedError, match=words):
        mixer(x, mask=Mask(causal=True))
    assert mixer.attention_map(x).triu(1).abs().max() == 0
    moved = x.clone()
    moved[:, 9:] = torch.randn(1, 4, 24, dtype=torch.float64)
    assert not torch.allclose(mixer(moved)[:, :9], mixer(x)[:, :9])  # the leak
