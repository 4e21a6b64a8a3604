"""What no law covers: limit identities and independences of mechanisms without token-to-token scores."""

import pytest
import torch

from regard import Mask, OptionError, UnknownNameError, build
from regard.core.states import tensors
from regard.functional.fourier import fourier_mixing
from regard.functional.synthesizer import Logits, outer, same

B, T, D, H, N = 2, 13, 24, 3, 64


def tokens(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def moved(mixer, seed=1):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in mixer.parameters():
            p += 0.3 * torch.randn(p.shape, generator=generator, dtype=p.dtype)
    return mixer


def make(name, **options):
    torch.manual_seed(0)
    return moved(build(name, dim=D, num_heads=H, max_len=N, **options).double())


@pytest.mark.parametrize("causal", [False, True])
def test_random_synthesizer_with_equal_logits_averages(causal):
    mixer = make("synthesizer_random")
    with torch.no_grad():
        mixer.synthesis.logits.table.zero_()
    weights = mixer.attention_map(tokens(B, T, D), mask=Mask(causal=causal))
    ones = torch.ones(T, T, dtype=torch.float64)
    average = ones.tril() if causal else ones
    torch.testing.assert_close(
        weights, (average / average.sum(-1, keepdim=True)).expand(B, H, T, T)
    )


@pytest.mark.parametrize(
    "name", ["synthesizer_random", "synthesizer_factorized_random", "synthesizer_dense"]
)
def test_synthetic_rows_depend_on_their_own_token_at_most(name):
    mixer = make(name)
    x, other = tokens(B, T, D), tokens(B, T, D, seed=1)
    changed = x.clone()
    changed[:, 5] = other[:, 5]
    same = (mixer.attention_map(x) == mixer.attention_map(changed)).all(-1).all(1).all(0)
    expected = torch.ones(T, dtype=torch.bool)
    expected[5] = "random" in name
    assert torch.equal(same, expected)


def test_fixed_random_synthesizer_learns_no_logits():
    names = {name for name, _ in make("synthesizer_random", trainable=False).named_parameters()}
    assert names == {"synthesis.values.value.weight", "synthesis.values.out.weight"}


@pytest.mark.parametrize(("a", "b", "distinct"), [(4, 6, 12), (5, 7, 35)])
def test_same_tiling_reaches_the_least_common_multiple_of_pairs(a, b, distinct):
    left, right = torch.arange(1.0, a + 1), 100 ** torch.arange(1.0, b + 1)
    factors = [z.double()[None, None, None] for z in (left, right)]
    every, some = (Logits(form, tuple(factors))(slice(0, 1), a * b) for form in (outer, same))
    assert len(every.unique()) == a * b
    assert len(some.unique()) == distinct


def test_mixture_of_one_score_is_that_score():
    mixture, softmax = make("mixture", members=("softmax",)), make("softmax")
    own = mixture.state_dict()
    names = {
        "query": "members.softmax",
        "key": "members.softmax",
        "value": "values",
        "out": "values",
    }
    softmax.load_state_dict(
        {f"heads.{k}.weight": own[f"{where}.{k}.weight"] for k, where in names.items()}
    )
    x = tokens(B, T, D)
    assert mixture.capabilities.any_length is True
    torch.testing.assert_close(mixture(x), softmax(x), rtol=1e-10, atol=1e-10)


def test_a_member_without_a_share_is_not_heard():
    mixture = make("mixture", members=("synthesizer_dense", "synthesizer_random"))
    dense = make("synthesizer_dense")
    with torch.no_grad():
        mixture.blend[1] = -1e4
    own = mixture.state_dict()
    where = {"synthesis.logits.": "members.synthesizer_dense.", "synthesis.": ""}
    values = {}
    for key in dense.state_dict():
        prefix = next(p for p in where if key.startswith(p))
        values[key] = own[where[prefix] + key.removeprefix(prefix)]
    dense.load_state_dict(values)
    x = tokens(B, T, D)
    torch.testing.assert_close(mixture(x), dense(x), rtol=1e-10, atol=1e-10)


def test_unknown_member_suggests_the_near_name():
    with pytest.raises(UnknownNameError, match="Did you mean 'synthesizer_dense'"):
        build("mixture", dim=D, num_heads=H, max_len=N, members=("synthesiser_dense",))


@pytest.mark.parametrize("valid", [None, torch.tensor([[True] * 11 + [False] * 2, [True] * T])])
def test_fourier_mixing_is_linear_and_agrees_with_the_plain_transform(valid):
    x, z = tokens(B, T, D), tokens(B, T, D, seed=1)
    if valid is not None:
        x, z = x * valid[..., None], z * valid[..., None]
    mask = Mask(valid=valid, compact=valid is not None)
    added = fourier_mixing(x, mask=mask) + 2 * fourier_mixing(z, mask=mask)
    torch.testing.assert_close(fourier_mixing(x + 2 * z, mask=mask), added, rtol=0, atol=1e-10)
    for b, n in enumerate([T, T] if valid is None else [11, T]):
        plain = torch.fft.fft2(x[b, :n]).real
        torch.testing.assert_close(fourier_mixing(x, mask=mask)[b, :n], plain, rtol=0, atol=1e-10)


@pytest.mark.parametrize("n", [4093, 5000])
def test_long_rows_keep_their_digits(n):
    x = tokens(1, 6000, 3)
    x[:, n:] = 0
    valid = torch.arange(6000)[None] < n
    y = fourier_mixing(x, mask=Mask(valid=valid, compact=True))[:, :n]
    plain = torch.fft.fft2(x[:, :n]).real
    assert (y - plain).abs().max() < 1e-12 * n**0.5 * plain.abs().max()


def test_gmlp_starts_as_a_feed_forward_layer():
    torch.manual_seed(0)
    mixer = build("gmlp", dim=D, max_len=N).double()
    x, other = tokens(B, T, D), tokens(B, T, D, seed=1)
    changed = x.clone()
    changed[:, 5] = other[:, 5]
    moved_by = (mixer(changed) - mixer(x)).abs().amax((0, 2))
    others = torch.arange(T) != 5
    assert moved_by[others].max() < 1e-3 * moved_by[5]


@pytest.mark.parametrize("causal", [False, True])
def test_flash_in_one_chunk_without_sums_is_gau(causal):
    flash, gau = make("flash", key_dim=8, chunk_size=T), make("gau", key_dim=8)
    with torch.no_grad():
        flash.unit.offset_scale.gamma[2:] = 0
        flash.unit.offset_scale.beta[2:] = 0
    own = flash.state_dict()
    own |= {f"unit.offset_scale.{p}": own[f"unit.offset_scale.{p}"][:2] for p in ("gamma", "beta")}
    gau.load_state_dict(own)
    x, mask = tokens(B, T, D), Mask(causal=causal)
    torch.testing.assert_close(flash(x, mask=mask), gau(x, mask=mask), rtol=0, atol=1e-10)


def test_mixed_chunk_local_in_one_chunk_is_softmax_and_global_is_a_product_of_sums():
    local = make("mixed_chunk", parts="local", chunk_size=T)
    x = tokens(B, T, D)
    q, k, v = local._parts(x, torch.arange(T)[None])
    expected = local.heads.merge((q @ k.transpose(-1, -2)).softmax(-1) @ v)
    torch.testing.assert_close(local(x), expected, rtol=0, atol=1e-10)
    between = make("mixed_chunk", parts="global", chunk_size=4)
    q, k, v = between._parts(x, torch.arange(T)[None])
    expected = between.heads.merge(q @ (k.transpose(-1, -2) @ v) / T)
    torch.testing.assert_close(between(x), expected, rtol=0, atol=1e-10)


def test_constant_states_do_not_grow():
    for name in ("flash", "mixed_chunk"):
        mixer = make(name, chunk_size=4)
        state = mixer.initial_state(B)
        sizes = [a.shape for a in tensors(state).values()]
        for piece in tokens(B, T, D).split([1, 5, 7], dim=1):
            _, state = mixer.extend(piece, state)
            assert [a.shape for a in tensors(state).values()] == sizes


def test_options_that_cannot_be_used():
    with pytest.raises(OptionError, match="needs max_len"):
        build("gau", dim=D, scale="paper")
    with pytest.raises(OptionError, match="must be even"):
        build("gau", dim=D, key_dim=7)
    with pytest.raises(OptionError, match="4 patterns need as many heads"):
        build("fixed_patterns", dim=D, num_heads=3, patterns=("left",) * 4)
    with pytest.raises(UnknownNameError, match="Did you mean 'previous'"):
        build("fixed_patterns", dim=D, num_heads=3, patterns=("previos",))
