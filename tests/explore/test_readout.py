"""The readout, whose influence is the Jacobian, and its weights in few bytes. That weights are those really used is a law (`map`)."""

import pytest
import torch
from torch.autograd.functional import jacobian

import regard
from regard import Mask
from regard.explore import influence, kind_of, readout
from regard.explore.inputs import Group, Sheet
from regard.explore.packed import pack, windows
from regard.testing.subject import Subject, cut
from tests.laws.catalogue import factory


def blocks(mixer, x, mask):
    """|dy_t / dx_s| from torch's own Jacobian of one row."""
    found = jacobian(lambda z: mixer(z[None], mask=mask)[0], x)
    return found.square().sum((1, 3)).sqrt()


@pytest.mark.parametrize("name", ["fnet", "mlp_mixer", "gau", "compressed", "local", "linear"])
def test_influence_is_the_norm_of_the_jacobians_blocks(name):
    subject = Subject(factory(name, {}))
    mixer, x, can = subject.make(), subject.tokens(2, 4), subject.can
    masks = [subject.mask]
    if can.padding:
        valid = torch.tensor([[True, True, True, True], [True, False, True, True]])
        masks.append(Mask(causal=bool(can.causal), valid=valid))
    for mask in masks:
        measure = "auto" if name == "mlp_mixer" else "influence"
        found = readout(mixer, x, mask=mask, measure=measure)
        rows = [blocks(mixer, x[b], cut(mask, slice(4), b)) for b in range(2)]
        assert found.kind == "influence"
        torch.testing.assert_close(found.values[:, 0], torch.stack(rows), rtol=1e-9, atol=1e-9)
    if name == "linear":
        found = readout(mixer, x, context=subject.tokens(2, 7), measure="influence")
        assert found.values.shape == (2, 1, 4, 7) and found.values.gt(0).all()


def test_probes_estimate_the_norm_and_chunks_change_nothing():
    subject = Subject(factory("fnet", {}))
    mixer, x = subject.make(), subject.tokens(1, 4)
    exact = influence(mixer, x)
    torch.testing.assert_close(influence(mixer, x, chunk=7), exact, rtol=1e-12, atol=1e-12)
    squares = [influence(mixer, x, probes=100, seed=seed).square() for seed in range(4)]
    ratio = torch.stack(squares).mean(0) / exact.square()
    assert (ratio - 1).abs().max() < 0.2


def test_kinds_follow_from_the_values():
    rows = {"stochastic": [0.25, 0.75], "nonnegative": [0.25, 0.7], "signed": [1.5, -0.5]}
    for kind, row in rows.items():
        assert kind_of(torch.tensor([[[row, [0.0, 0.0]]]])) == kind


def test_what_gives_no_numbers_for_each_token_is_refused():
    for wrong in (lambda z: z.sum(1), lambda z: (z, z), lambda z: None, lambda z: z[:, :, :0]):
        with pytest.raises(regard.ShapeError, match=r"function\(x\) .* must be .* \[1 T E\]"):
            influence(wrong, torch.zeros(1, 3, 24))


def group(values, prefix=0):
    _, T, S = values[0].shape
    names = [str(n) for n in range(max(T, S))]
    sheets = [Sheet(f"layer {n}", "made_up", "stochastic", v) for n, v in enumerate(values)]
    return Group("made up", names[:T], names[:S], False, sheets, prefix)


def test_fewer_levels_are_kept_where_bytes_are_few_and_of_long_inputs_windows_along_the_diagonal():
    values = torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(0))
    sizes = []
    for room in (40_000, 24_000, 16_000):
        (packed,) = pack([group([values])], window=64, max_bytes=room)
        sizes.append(packed["levels"])
        parts = [part for head in packed["sheets"][0]["data"] for part in head]
        assert sum(len(part["codes"]) for part in parts) < room
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[-1]
    with pytest.raises(regard.OptionError, match="more than 8,000 bytes with 3 levels"):
        pack([group([values])], window=64, max_bytes=8_000)
    with pytest.raises(regard.OptionError, match="NaN or infinities"):
        pack([group([values / 0])], window=64, max_bytes=10**6)
    T = 3 * 4096
    long = windows(T, T, 4096, 1)
    assert [(rows.start, cols.start) for rows, cols in long] == [(0, 0), (4096, 4096), (8192, 8192)]


def test_weights_of_external_tokens_are_counted():
    """Of queries that see any."""
    values = torch.full((1, 2, 3), 1 / 3)
    values = torch.nn.functional.pad(values, (0, 1, 0, 1))
    (packed,) = pack([group([values], prefix=1)], window=4, max_bytes=10**6)
    (sheet,) = packed["sheets"]
    assert sheet["external"] == pytest.approx([1 / 3], abs=1e-3)
    assert sheet["statistics"]["first"] == [0.5]
