"""The readout of every mechanism: its weights give back the output, its influence is the Jacobian."""

import zlib

import pytest
import torch
from torch import Tensor
from torch.autograd.functional import jacobian

import regard
from regard import Mask
from regard.explore import influence, kind_of, readout
from regard.mixers._scan import ScanMixer
from regard.mixers.latent import Latent
from regard.nn.heads import Heads, Values
from regard.testing.subject import Request, Subject
from tests.laws.catalogue import VARIANTS, factory

T = 13
BY_NAME = {(name, variant): options for name, variant, options in VARIANTS}


def merged(mixer: regard.Mixer, x: Tensor, mask: Mask, weights: Tensor, v: Tensor) -> Tensor:
    """The mixer's output from weights and values: what comes after mixing, written for each family."""
    if getattr(mixer, "external", None) is not None:
        own = mixer.heads.values(mixer.external[None]).expand(len(v), -1, -1, -1)
        v = torch.cat([own, v], dim=2)
    mixed = weights @ v.repeat_interleave(weights.shape[1] // v.shape[1], dim=1)
    if mixer.name == "longformer" and mask.global_tokens is not None:  # with values of their own
        rows = weights @ mixer.global_heads.values(x)
        mixed = torch.where(mask.global_tokens[:, None, :, None], rows, mixed)
    if mixer.name == "gmlp":
        present = x.new_ones(x.shape[:2]) if mask.valid is None else mask.valid
        place = (present.cumsum(1).long() - 1).clamp(min=0)
        return mixer.narrow(
            mixer._split(x, None, None)[0][0] * (mixed[:, 0] + mixer.bias[place][..., None])
        )
    if hasattr(mixer, "unit"):
        return mixer.unit.merge(x, mixed)
    if mixer.name == "differential":  # whose weights are differences already
        return mixer._merge(x, torch.stack([mixed, 0 * mixed], 2).flatten(1, 2))
    if isinstance(mixer, ScanMixer | Latent):  # norm and gate, or heads without `Heads`
        return mixer._merge(x, mixed)
    heads = next(m for m in mixer.modules() if isinstance(m, Heads | Values))
    return heads.merge(mixed, x) if isinstance(heads, Heads) else heads.merge(mixed)


def requests(subject: Subject) -> list[Request]:
    """Two of all, other ones for each mechanism, so that every declared yes is met by many."""
    found = list(subject.requests())
    first = zlib.crc32(repr((subject.name, subject.options)).encode()) % len(found)
    return [found[first], found[(first + len(found) // 2) % len(found)]]


@pytest.mark.parametrize("name, variant", BY_NAME)
def test_weights_times_values_are_the_output(name, variant):
    subject = Subject(factory(name, BY_NAME[name, variant]))
    mixer = subject.make()
    if not mixer.capabilities.attention_map:
        with pytest.raises(regard.UnsupportedError, match="does not support attention_map"):
            readout(mixer, subject.tokens(2, T), measure="weights")
        return
    for request in requests(subject):
        x = subject.tokens(2, T)
        with torch.no_grad():
            found = readout(mixer, x, context=request.context, mask=request.mask)
            seen = mixer.observe(x, context=request.context, mask=request.mask)
            y = mixer(x, context=request.context, mask=request.mask)
            made = merged(mixer, x, request.mask, found.values, seen.v)
        # What sees nothing is zero, whatever a bias or a gate would add.
        made = torch.where((y == 0).all(-1, keepdim=True), y, made)
        torch.testing.assert_close(made, y, rtol=1e-9, atol=1e-9)
        assert found.prefix == found.values.shape[-1] - seen.v.shape[2]


def blocks(mixer, x, mask):
    """|dy_t / dx_s| from torch's own Jacobian of one row."""
    found = [
        jacobian(lambda z: mixer(z[None], mask=mask)[0], row).square().sum((1, 3)).sqrt()
        for row in x
    ]
    return torch.stack(found)


@pytest.mark.parametrize("name", ["fnet", "mlp_mixer", "gau", "compressed"])
def test_influence_is_the_norm_of_the_jacobians_blocks(name):
    subject = Subject(factory(name, {}))
    mixer, x = subject.make(), subject.tokens(2, 3)
    found = readout(mixer, x, measure="influence")
    assert found.kind == "influence" and found.values.shape == (2, 1, 3, 3)
    torch.testing.assert_close(found.values[:, 0], blocks(mixer, x, Mask()), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("scalar_decay", "signed"), ("gated_linear", "signed")),  # products without a softmax
        *(("gated_delta", "signed"), ("kimi_delta", "signed")),  # what is erased
        *(("differential", "signed"), ("nystrom", "signed")),  # a difference, an inverse
        *(("forgetting", "stochastic"), ("latent", "stochastic")),
    ],
)
def test_a_map_is_called_by_its_signs_and_sums(name, kind):
    subject = Subject(factory(name, {}))
    mixer = subject.make()
    mask = Mask(causal=not mixer.capabilities.bidirectional)
    assert readout(mixer, subject.tokens(2, T), mask=mask).kind == kind


def test_mechanisms_without_weights_show_their_influence():
    subject = Subject(factory("mlp_mixer", {}))
    assert readout(subject.make(), subject.tokens(1, 4)).kind == "influence"


@pytest.mark.parametrize("name", ["local", "linear", "mlp_mixer"])
def test_influence_honours_masks_and_padding(name):
    subject = Subject(factory(name, {}))
    mixer, x = subject.make(), subject.tokens(1, 6)
    causal = bool(mixer.capabilities.causal)
    valid = torch.tensor([[True, True, False, True, True, False]])
    found = readout(mixer, x, mask=Mask(causal=causal, valid=valid), measure="influence")
    norms = found.values[0, 0]
    assert norms[~valid[0]].eq(0).all() and norms[:, ~valid[0]].eq(0).all()
    assert norms[valid[0]].gt(0).any(1).all()
    assert not causal or norms.triu(1).eq(0).all()


def test_influence_of_a_context_has_its_length():
    subject = Subject(factory("linear", {}))
    found = readout(
        subject.make(), subject.tokens(1, 3), context=subject.tokens(1, 7), measure="influence"
    )
    assert found.values.shape == (1, 1, 3, 7) and found.values.gt(0).all()


def test_probes_estimate_the_norm_and_chunks_change_nothing():
    subject = Subject(factory("fnet", {}))
    mixer, x = subject.make(), subject.tokens(1, 4)
    exact = influence(mixer, x)
    torch.testing.assert_close(influence(mixer, x, chunk=7), exact, rtol=1e-12, atol=1e-12)
    squares = [influence(mixer, x, probes=100, seed=seed).square() for seed in range(4)]
    ratio = torch.stack(squares).mean(0) / exact.square()
    assert (ratio - 1).abs().max() < 0.2


@pytest.mark.parametrize(
    "weights, kind",
    [
        ([[0.25, 0.75], [0.0, 0.0]], "stochastic"),
        ([[0.25, 0.7], [0.0, 1.0]], "nonnegative"),
        ([[1.5, -0.5], [0.0, 1.0]], "signed"),
    ],
)
def test_kinds_follow_from_the_values(weights, kind):
    assert kind_of(torch.tensor([[weights]])) == kind


def test_wrong_requests_are_refused():
    mixer, x = factory("softmax", {})(), torch.zeros(1, 3, 24)
    with pytest.raises(regard.OptionError, match=r"measure .* must be one of"):
        readout(mixer, x, measure="entropy")
    with pytest.raises(regard.ShapeError, match=r"x .* must be a dense float tensor \[B S D\]"):
        influence(mixer, x[0])
    with pytest.raises(regard.ShapeError, match=r"function\(x\) must be"):
        influence(lambda z: z.sum(1), x)
