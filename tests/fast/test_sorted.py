import pytest
import torch

from regard.core import Mask
from regard.functional import lsh_attention
from regard.functional.rows import Form
from regard.testing import check_mixer
from regard.testing.counting import count
from tests.laws.catalogue import factory

MIXERS = [
    ("reformer", {"num_buckets": 2, "chunk_size": 2, "chunks_before": 2, "chunks_after": 1}),
    ("reformer", {"chunk_size": 3, "same_bucket_only": False, "num_hashes": 2}),
    ("routing", {"num_clusters": 3, "window_size": 4}),
    ("routing", {"num_clusters": 3, "window_size": 4, "scale": 300.0}),
]


@pytest.mark.parametrize("room", [1, 1 << 8, 1 << 13])
@pytest.mark.parametrize(("name", "options"), MIXERS)
def test_however_much_is_held_at_once_it_is_the_oracle(name, options, room):
    """A scale of 300 has scores whose exponentials are no numbers."""
    check_mixer(factory(name, {**options, "impl": Form(room=room)}), "reference", blocks="own")


def test_no_pairs_are_stored_for_the_backward_pass():
    q = torch.zeros(1, 2, 4096, 16, requires_grad=True)
    buckets = torch.zeros(1, 2, 2, 4096, dtype=torch.long)

    def train():
        y = lsh_attention(q, q, q, buckets=buckets, chunk_size=64, mask=Mask(causal=True))
        y.sum().backward()

    pairs = 2 * 2 * 4096 * 128 * 4  # float32 scores of all rounds
    assert count(train).peak_bytes < 2 * pairs
