"""Options that today's models have: norms of heads, a cap, an output gate, sinks; against other code than the oracles."""

import pytest
import torch

from regard import Mask, build
from regard.testing import check_mixer

FACTS = {"dim": 24, "num_heads": 4}
SINKS = {"sinks": True, "num_kv_heads": 2, "head_dim": 8, "bias": "qkv"}
ANGLES = 1e-6
"""Tolerance beside Transformers, whose rotary angles are in float32."""
ALL = {**SINKS, "qk_norm": True, "gate": True, "soft_cap": 1.5}


def shaken(mixer):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return mixer.double()


@pytest.mark.parametrize("options", [SINKS, ALL, {**ALL, "qk_norm": "all", "position": "rotary"}])
@pytest.mark.parametrize("causal", [True, False])
def test_a_window_of_all_tokens_is_softmax(options, causal):
    """Two ways to a sink: a key of value zero, and a column of the window's scores."""
    softmax = shaken(build("softmax", **FACTS, **options))
    local = build("local", **FACTS, window_size=16, **options).double()
    local.load_state_dict(softmax.state_dict())
    x = torch.randn(2, 13, 24, dtype=torch.float64)
    valid = torch.ones(2, 13, dtype=torch.bool)
    valid[0, 3:6] = False
    mask = Mask(causal=causal, valid=valid)
    results = []
    for mixer in (softmax, local):
        y = mixer(x, mask=mask)
        results.append([y, *torch.autograd.grad(y.square().sum(), list(mixer.parameters()))])
        results[-1] += [mixer.attention_map(x, mask=mask), mixer.observe(x, mask=mask).heads]
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "name, options",
    [("softmax", ALL), ("softmax", {"sinks": True, "position": "t5"}), ("local", ALL)],
)
def test_maps_are_what_is_mixed_and_heads_are_what_is_projected(name, options):
    check_mixer(
        lambda: build(name, dim=24, num_heads=4, **options),
        laws=["map", "observed", "empty", "isolation"],
    )


@pytest.mark.parametrize("window", [3, None])
def test_sinks_are_those_of_gpt_oss(window):
    transformers = pytest.importorskip("transformers")
    modeling = pytest.importorskip("transformers.models.gpt_oss.modeling_gpt_oss")
    config = transformers.GptOssConfig(
        hidden_size=24,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_hidden_layers=1,
        sliding_window=window,
        layer_types=["sliding_attention" if window else "full_attention"],
        rope_parameters={"rope_type": "default", "rope_theta": 150000.0},
        attn_implementation="eager",
        attention_bias=True,
    )
    torch.manual_seed(0)
    theirs = modeling.GptOssAttention(config, 0).double()
    torch.nn.init.normal_(theirs.sinks)
    options = {"sinks": True, "num_kv_heads": 2, "head_dim": 8, "bias": True}
    options |= {"position": "rotary", "position_options": {"base": 150000.0}}
    if window:
        ours = build("local", **FACTS, window_size=window - 1, **options).double()
    else:
        ours = build("softmax", **FACTS, **options).double()
    names = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "o_proj"}
    given = theirs.state_dict()
    copied = {
        f"heads.{n}.{part}": given[f"{other}.{part}"]
        for n, other in names.items()
        for part in ("weight", "bias")
    }
    ours.load_state_dict({"sinks": given["sinks"], **copied})
    x = torch.randn(2, 11, 24, dtype=torch.float64, requires_grad=True)
    i, j = torch.arange(11)[:, None], torch.arange(11)
    seen = (j <= i) & ((i - j < window) if window else True)
    added = torch.zeros(11, 11, dtype=torch.float64).masked_fill(~seen, -torch.inf)[None, None]
    places = modeling.GptOssRotaryEmbedding(config).double()(x, j[None])
    expected, weights = theirs(x, places, added)
    found = ours(x, mask=Mask(causal=True))
    torch.testing.assert_close(found, expected, rtol=0, atol=ANGLES)
    torch.testing.assert_close(
        ours.attention_map(x, mask=Mask(causal=True)), weights, rtol=0, atol=ANGLES
    )
    for y, s in ((found, ours.sinks), (expected, theirs.sinks)):
        (s.grad,) = torch.autograd.grad(y.square().sum(), s)
    torch.testing.assert_close(ours.sinks.grad, theirs.sinks.grad, rtol=0, atol=ANGLES)


def test_the_gate_and_norms_are_qwens():
    """Qwen3-Next: gate and norm of each head in one layer, its gate in the query's projection, its norm's weights less one."""
    transformers = pytest.importorskip("transformers")
    modeling = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    config = transformers.Qwen3NextConfig(
        hidden_size=24,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        rms_norm_eps=1e-5,
        attn_implementation="eager",
        layer_types=["full_attention"],
        num_hidden_layers=1,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0},
    )
    torch.manual_seed(0)
    theirs = shaken(modeling.Qwen3NextAttention(config, 0))
    options = {"num_kv_heads": 2, "head_dim": 8, "qk_norm": True, "gate": True}
    ours = build("softmax", **FACTS, **options, position="rotary").double()
    given = theirs.state_dict()
    q, gate = given["q_proj.weight"].unflatten(0, (4, 16)).split(8, 1)
    ours.load_state_dict(
        {
            "heads.query.weight": q.flatten(0, 1),
            "heads.gate.weight": gate.flatten(0, 1),
            "heads.key.weight": given["k_proj.weight"],
            "heads.value.weight": given["v_proj.weight"],
            "heads.out.weight": given["o_proj.weight"],
            "heads.query_norm.weight": 1 + given["q_norm.weight"],
            "heads.key_norm.weight": 1 + given["k_norm.weight"],
        }
    )
    x = torch.randn(2, 7, 24, dtype=torch.float64)
    places = modeling.Qwen3NextRotaryEmbedding(config).double()(x, torch.arange(7)[None])
    added = torch.full((7, 7), -torch.inf, dtype=torch.float64).triu(1)[None, None]
    expected, _ = theirs(x, places, added)
    torch.testing.assert_close(ours(x, mask=Mask(causal=True)), expected, rtol=0, atol=ANGLES)


def test_half_precision_and_autocast_take_sinks():
    mixer = build("softmax", **FACTS, **SINKS)
    x = torch.randn(2, 9, 24)
    y = mixer(x, mask=Mask(causal=True))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(
            mixer(x, mask=Mask(causal=True)).float(), y, rtol=0.05, atol=0.05
        )


def test_no_fused_kernel_caps_scores():
    capped = build("softmax", **FACTS, soft_cap=2.0, impl="fused")
    with pytest.raises(ValueError, match="it does not cap scores"):
        capped(torch.randn(1, 4, 24))


@pytest.mark.parametrize("scale", [0.0, -1.0])
def test_a_factor_that_is_not_above_zero_hides_nothing(scale):
    x = torch.randn(2, 13, 24)
    mixer = build("softmax", **FACTS, scale=scale)
    plain = build("softmax", **FACTS, scale=scale, impl="plain")
    plain.load_state_dict(mixer.state_dict())
    for mask in (Mask(causal=True), Mask()):
        torch.testing.assert_close(mixer(x, mask=mask), plain(x, mask=mask), rtol=0, atol=1e-6)
