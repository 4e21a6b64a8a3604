"""Sequences taken a segment at a time: the laws hold where every sequence is cut."""

import pytest
import torch

import regard
from regard import Mask
from regard.functional import segments
from regard.testing import check_mixer

CUT = ("reference", "causality", "padding", "poison", "batch", "randomness", "lengths", "streaming")
CASES = [
    ("linear", {}),
    ("performer", {"num_features": 8}),
    ("performer", {"num_features": 8, "features": "relu"}),
    ("rfa", {"num_features": 64}),
    ("rfa", {"num_features": 64, "gate": True}),
    ("efficient", {}),
]
IDS = [f"{name} {' '.join(map(str, options.values()))}" for name, options in CASES]


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_the_laws_hold_in_segments_of_four_tokens(name, options, monkeypatch):
    lengths = []

    def four(features, like):
        lengths.append(like.shape[2])
        return 4 if like.shape[2] > 4 else None

    monkeypatch.setattr("regard.functional.linear.segment_length", four)
    monkeypatch.setattr("regard.functional.efficient.segment_length", four)
    check_mixer(lambda: regard.build(name, dim=24, num_heads=3, max_len=64, **options), CUT)
    assert max(lengths) > 4


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_long_sequences_are_cut_and_equal_the_whole(name, options, monkeypatch):
    torch.manual_seed(0)
    mixer = regard.build(name, dim=24, num_heads=3, max_len=64, **options).double()
    valid = torch.arange(700) < torch.tensor([[700], [555]])
    results = []
    for size in (128, None):
        for module in ("linear", "efficient"):
            monkeypatch.setattr(
                f"regard.functional.{module}.segment_length",
                lambda features, like, size=size: size,
            )
        x = torch.randn(2, 700, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        x.requires_grad_()
        y = mixer(x, mask=Mask(causal=True, valid=valid))
        (dx,) = torch.autograd.grad(y.square().sum(), x)
        results.append((y, dx))
    for ours, whole in zip(*results, strict=True):
        torch.testing.assert_close(ours, whole, rtol=1e-10, atol=1e-10)


def test_a_segment_is_as_long_as_its_features_allow():
    like = torch.empty(1, 8, 4096, 64)
    assert segments.segment_length(256, like) == 512
    assert segments.segment_length(64, like) == 2048
    assert segments.segment_length(1 << 20, like) == segments.SHORTEST
    assert segments.segment_length(64, like[:, :, :2048]) is None
    assert segments.segment_length(64, like.to("meta")) is None


def test_training_keeps_outputs_and_borders_alone():
    """What is kept of 16,384 tokens for the backward pass: less than one tensor of their features."""
    torch.manual_seed(0)
    mixer = regard.build("performer", dim=32, num_heads=2, num_features=256)
    x = torch.randn(1, 16384, 32)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda z: kept.append((z.untyped_storage().data_ptr(), z.untyped_storage().nbytes())) or z,
        lambda z: z,
    ):
        mixer(x, mask=Mask(causal=True))
    assert sum(size for _, size in set(kept)) < 2 * 16384 * 256 * 4
