"""What no law asks of a single mixer."""

import pytest
import torch
from torch.export import Dim, export

from regard import MIXERS, Mask, ShapeError, UnsupportedError, build
from regard.functional.fourier import fourier_mixing
from regard.functional.lsh import angular_hash
from regard.mixers import HeadGroup
from regard.nn import LengthProjection, after_step
from regard.testing import LAWS, check_mixer
from regard.testing.laws.streaming import feed, require_streamed
from regard.testing.subject import normal
from tests.laws.catalogue import factory
from tests.models.small import classifier, prompts

FACTS = {"dim": 24, "num_heads": 3}
SIZES = {"nystrom": "num_landmarks", "reformer": "chunk_size", "sinkhorn": "block_size"}
ROUTED = HeadGroup("routing", 2, {"num_clusters": 3, "window_size": 4, "seed": 0})


def test_the_state_of_compressed_grows_by_one_slot_for_every_few_tokens():
    mixer, x = build("compressed", **FACTS, factor=3).double(), normal(2, 13, 24)
    _, state = feed(mixer, x, mixer.initial_state(2), [1] * 13)
    assert state.k.shape[2] == 1 + 4 and state.rest_k.shape[2] == 2  # token 0, and 13 // 3
    with torch.no_grad():
        state = mixer.initial_state(2, max_len=30)
        place = state.k.data_ptr()
        _, state = feed(mixer, x, state, [1] * 13, donate=True)
    assert state.k.data_ptr() == place and state.k.shape[2] == 1 + 10


@pytest.mark.parametrize("name", SIZES)
def test_sizes_beyond_the_row_are_those_of_the_row(name):
    fitting, large = (build(name, **FACTS, max_len=13, **{SIZES[name]: n}) for n in (13, 10**6))
    large.load_state_dict(fitting.state_dict())
    x = torch.randn(2, 13, 24)
    torch.testing.assert_close(large(x), fitting(x))


@pytest.mark.parametrize("name, facts", [("local", FACTS), ("fnet", {"dim": 24})])
def test_a_program_for_any_length_serves_one_token_and_two(name, facts):
    mixer, any_size = build(name, **facts), {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    given = [
        {"mask": Mask(valid=torch.arange(n) < torch.tensor([[n], [n - 1]]))} for n in (16, 1, 2)
    ]
    of_mask = [any_size, None, None, None, None]
    program = export(
        mixer, (torch.randn(2, 16, 24),), given[0], dynamic_shapes={"x": any_size, "mask": of_mask},
        prefer_deferred_runtime_asserts_over_guards=True,
    ).module()  # fmt: skip
    for n, how in enumerate(given[1:], 1):
        x = torch.randn(2, n, 24)
        torch.testing.assert_close(program(x, **how), mixer(x, **how))


def test_a_prediction_of_luong_local_at_its_end_looks_at_the_last_key():
    mixer = build("luong_local", **FACTS, window_size=1, alignment="predictive").double()
    mixer.v_p.data.fill_(1e4)
    mixer.W_p.data.fill_(1e4)
    x = normal(2, 13, 24)
    assert mixer(x).isfinite().all() and (mixer.attention_map(x).sum(-1) > 0).all()


def test_a_mixtures_stream_without_bound_goes_past_max_len():
    mixer = build("mixture", dim=8, num_heads=2, max_len=5, members=("softmax",)).double()
    require_streamed(mixer, normal(1, 9, 8), [1] * 9, "past max_len")


def test_training_draws_from_the_pool_of_rfa_without_replacement_and_evaluation_takes_the_first():
    mixer, seen = build("rfa", **FACTS, pool_size=5), set()
    for _ in range(30):
        mixer.after_step()
        drawn = mixer.drawn.tolist()
        assert len(set(drawn)) == 3 and set(drawn) <= set(range(5))
        seen |= set(drawn)
    assert seen == set(range(5))
    x = torch.randn(2, 7, 24)
    y = mixer.eval()(x)
    mixer.after_step()
    assert torch.equal(mixer(x), y)
    mixer.train().drawn.copy_(torch.arange(3))
    assert torch.equal(mixer(x), y)


@pytest.mark.parametrize("name, drawn", [("bigbird", "random_blocks"), ("reformer", "rotations_0")])
def test_what_is_drawn_comes_from_the_seed_and_travels_with_the_model(name, drawn):
    one, two, other = (build(name, dim=8, num_heads=2, max_len=1024, seed=s) for s in (5, 5, 6))
    assert torch.equal(getattr(one, drawn), getattr(two, drawn))
    assert not torch.equal(getattr(one, drawn), getattr(other, drawn))
    assert drawn in one.state_dict()
    if name == "reformer":  # two buckets for each chunk of 64
        assert one.rotations_0.shape[-1] == 4 * 4


def test_one_matrix_of_linformer_serves_all_layers_and_keeps_the_laws():
    shared = LengthProjection(16, 5)
    options = {"sharing": "layerwise", "projection": shared}
    model = classifier(num_layers=3, max_len=16, mixer="linformer", mixer_options=options)
    assert [p.shape for p in model.parameters()].count((1, 5, 16)) == 1
    model(prompts()).sum().backward()
    assert shared.key.grad.abs().sum() > 0

    def layerwise():
        fresh = options | {"projection": LengthProjection(1200, 5)}
        return build("linformer", **FACTS, max_len=64, **fresh)

    remade = {"complexity", "long", "second_derivative", "training_memory", "transfer"}
    check_mixer(layerwise, set(LAWS) - remade)  # the others compare or remake options


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
    mixer = build("gmlp", dim=24, max_len=64).double()
    x, other = normal(2, 13, 24), normal(2, 13, 24, seed=1)
    changed = x.clone()
    changed[:, 5] = other[:, 5]
    moved_by = (mixer(changed) - mixer(x)).abs().amax((0, 2))
    others = torch.arange(13) != 5
    assert moved_by[others].max() < 1e-3 * moved_by[5]


def test_noise_of_sinkhorn_belongs_to_training():
    mixer = build("sinkhorn", **FACTS, max_len=64, block_size=4)
    x = torch.randn(1, 16, 24)
    assert not torch.equal(mixer.train()(x), mixer(x))


def test_a_bucket_is_the_largest_of_the_projections_and_their_opposites_and_factors_multiply():
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 1, 4000, 16, generator=generator)
    rotations = [torch.randn(1, 1, 16, n, generator=generator) for n in (1, 2, 3)]
    a, b, c = (torch.cat([z, -z], -1).argmax(-1) for z in (q @ rotation for rotation in rotations))
    found = [angular_hash(q, some)[0, 0, 0] for some in (rotations[:1], rotations[1:])]
    assert torch.equal(found[0], a[0, 0])
    pairs = torch.stack([found[1], b[0, 0], c[0, 0]], dim=1).unique(dim=0)
    assert pairs[:, 0].tolist() == list(range(24)) and len(pairs) == 24


@pytest.mark.parametrize(("name", "words"), [("reformer", "borders"), ("routing", "later tokens")])
def test_a_published_causal_form_sees_the_past_alone_and_says_that_its_structure_leaks(name, words):
    torch.manual_seed(0)
    mixer = factory(name, MIXERS[name].variants["published_causal"])().double().eval()
    x = torch.randn(1, 13, 24, dtype=torch.float64)
    with pytest.raises(UnsupportedError, match=words):
        mixer(x, mask=Mask(causal=True))
    assert mixer.attention_map(x).triu(1).abs().max() == 0
    moved = x.clone()
    moved[:, 9:] = torch.randn(1, 4, 24, dtype=torch.float64)
    assert not torch.allclose(mixer(moved)[:, :9], mixer(x)[:, :9])  # the leak


def test_longformer_starts_with_one_set_of_projections_and_bounds_its_global_tokens():
    mixer = build("longformer", **FACTS, window_size=2, max_global=2)
    assert torch.equal(mixer.heads.query.weight, mixer.global_heads.query.weight)
    x, marks = torch.randn(1, 9, 24), torch.arange(9)[None] < 2
    assert mixer(x, mask=Mask(global_tokens=marks)).shape == x.shape
    marks[:, 5] = True
    with pytest.raises(ShapeError, match="marks more tokens of a row than max_global=2"):
        mixer(x, mask=Mask(global_tokens=marks))
    few = Mask(global_tokens=torch.arange(9)[None] < 2)
    compiled = torch.compile(mixer, fullgraph=True, backend="eager")
    exported = torch.export.export(mixer, (x,), {"mask": few}).module()
    for program in (compiled, exported):
        with pytest.raises(RuntimeError, match="marks more tokens of a row than max_global=2"):
            program(x, mask=Mask(global_tokens=marks))
    many = torch.stack([few.global_tokens, marks])  # which nobody counts under vmap
    call = lambda z, marks: mixer(z, mask=Mask(global_tokens=marks)).sum()  # noqa: E731
    found = torch.vmap(torch.func.grad(call), in_dims=(None, 0))(x, many)
    mixer.max_global = None
    one, other = (torch.func.grad(call)(x, z) for z in many)
    torch.testing.assert_close(found, torch.stack([one, other]))


def grouped(*groups, **options):
    torch.manual_seed(0)
    return build("head_groups", dim=12, num_heads=3, groups=groups or None, **options).double()


def test_the_heads_with_centroids_have_their_commitment_loss_and_move_after_a_step():
    x = torch.randn(2, 9, 12).double()
    mixer = grouped(HeadGroup("local", 1), ROUTED)
    routing = build("routing", dim=12, num_heads=3, **ROUTED.options).double()
    for name in ("query", "key", "value"):
        getattr(routing.heads, name).weight.data = getattr(mixer.heads, name).weight.data
    routing.centroids.value[1:] = mixer.groups[1].centroids.value
    alone = grouped(HeadGroup("routing", 3, ROUTED.options))
    state = routing.state_dict().items()
    alone.load_state_dict({n.replace("centroids", "groups.0.centroids"): z for n, z in state})
    torch.testing.assert_close(alone.commitment_loss(x), routing.commitment_loss(x))
    loss = mixer.commitment_loss(x)
    (gradient,) = torch.autograd.grad(loss, mixer.heads.query.weight)
    assert (gradient[:4] == 0).all() and (gradient[4:] != 0).any()
    with pytest.raises(UnsupportedError, match="none of its groups has centroids"):
        grouped().commitment_loss(x)
    within = HeadGroup("head_groups", 1, {"groups": (HeadGroup("local", 1),)})
    assert grouped(within, ROUTED).commitment_loss(x) > 0
    before = mixer.groups[1].centroids.value.clone()
    mixer(x).sum().backward()
    after_step(mixer)
    assert not torch.equal(mixer.groups[1].centroids.value, before)
