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


@pytest.mark.parametrize(
    "name, options",
    [("softmax", ALL), ("softmax", {"sinks": True, "position": "t5"}), ("local", ALL)],
)
def test_maps_are_what_is_mixed_and_heads_are_what_is_projected(name, options):
    laws = ["map", "observed", "empty", "isolation"]
    check_mixer(lambda: build(name, **FACTS, **options), laws)


def their_name(name):
    """The name of a parameter of ours in an attention layer of Transformers."""
    for ours, other in {"query": "q", "key": "k", "value": "v", "out": "o"}.items():
        name = name.replace(f"heads.{ours}", f"{other}_proj")
    return name


@pytest.mark.parametrize("window", [3, None])
def test_sinks_are_those_of_gpt_oss(window):
    transformers = pytest.importorskip("transformers")
    modeling = pytest.importorskip("transformers.models.gpt_oss.modeling_gpt_oss")
    heads = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=8, attention_bias=True)
    places = {"rope_type": "default", "rope_theta": 150000.0}
    kinds = ["sliding_attention" if window else "full_attention"]
    options = dict(sliding_window=window, layer_types=kinds, rope_parameters=places)
    sizes = dict(hidden_size=24, num_hidden_layers=1, attn_implementation="eager")
    config = transformers.GptOssConfig(**sizes, **heads, **options)
    torch.manual_seed(0)
    theirs = modeling.GptOssAttention(config, 0).double()
    torch.nn.init.normal_(theirs.sinks)
    options = FACTS | SINKS | {"bias": True, "position": "rotary"}
    options |= {"position_options": {"base": 150000.0}}
    options |= {"window_size": window - 1} if window else {}
    ours = build("local" if window else "softmax", **options).double()
    given = theirs.state_dict()
    ours.load_state_dict({name: given[their_name(name)] for name in ours.state_dict()})
    x = torch.randn(2, 11, 24, dtype=torch.float64)
    i, j = torch.arange(11)[:, None], torch.arange(11)
    seen = (j <= i) & ((i - j < window) if window else True)
    added = torch.zeros(11, 11, dtype=torch.float64).masked_fill(~seen, -torch.inf)[None, None]
    places = modeling.GptOssRotaryEmbedding(config).double()(x, j[None])
    expected, weights = theirs(x, places, added)
    mask, close = Mask(causal=True), {"rtol": 0, "atol": ANGLES}
    found = ours(x, mask=mask)
    torch.testing.assert_close(found, expected, **close)
    torch.testing.assert_close(ours.attention_map(x, mask=mask), weights, **close)
    for y in (found, expected):
        y.square().sum().backward()
    gradients = {name: z.grad for name, z in theirs.named_parameters()}
    for name, own in ours.named_parameters():
        torch.testing.assert_close(own.grad, gradients[their_name(name)], **close, msg=name)


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
