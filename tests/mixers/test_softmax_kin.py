"""Latent and differential attention beside the published code that runs on a CPU; limits of kinds of softmax are the oracles'."""

import pytest
import torch

import regard

X = torch.randn(2, 11, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
CAUSAL = regard.Mask(causal=True)
SIZES = dict(hidden_size=24, attn_implementation="eager")
LATER = torch.full((11, 11), -torch.inf, dtype=torch.float64).triu(1)[None, None]


def built(name, **options):
    torch.manual_seed(1)
    return regard.build(name, dim=24, num_heads=3, **options).double().eval()


def test_latent_attention_is_deepseeks():
    deepseek = pytest.importorskip("transformers.models.deepseek_v3.modeling_deepseek_v3")
    ranks = dict(q_lora_rank=7, kv_lora_rank=5)
    widths = dict(qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6)
    heads = dict(num_attention_heads=3, num_key_value_heads=3)
    config = deepseek.DeepseekV3Config(**SIZES, **ranks, **widths, **heads)
    torch.manual_seed(0)
    theirs = deepseek.DeepseekV3Attention(config, layer_idx=0).double().eval()
    sizes = dict(latent_dim=5, nope_dim=8, rotary_dim=4, value_dim=6, query_rank=7)
    ours = built("latent", pairing="adjacent", **sizes)
    names = {
        "query.0": "q_a_proj", "query.1": "q_a_layernorm", "query.2": "q_b_proj",
        "compress": "kv_a_proj_with_mqa", "norm": "kv_a_layernorm", "expand": "kv_b_proj",
        "out": "o_proj",
    }  # fmt: skip
    state = theirs.state_dict()
    given = {f"{own}.weight": state[f"{name}.weight"] for own, name in names.items()}
    ours.latent.load_state_dict(given)
    places = torch.arange(X.shape[1])[None]
    turn = deepseek.DeepseekV3RotaryEmbedding(config).double()(X, places)
    expected, _ = theirs(X, position_embeddings=turn, attention_mask=LATER)
    assert torch.allclose(ours(X, mask=CAUSAL), expected, rtol=1e-4, atol=1e-5)  # eps: 1e-6 there


def test_the_first_version_is_diffllamas():
    diffllama = pytest.importorskip("transformers.models.diffllama.modeling_diffllama")
    heads = dict(num_attention_heads=4, num_key_value_heads=4, head_dim=6)
    config = diffllama.DiffLlamaConfig(**SIZES, **heads, rms_norm_eps=1e-5, attention_dropout=0.0)
    torch.manual_seed(0)
    theirs = diffllama.DiffLlamaAttention(config, layer_idx=3).double().eval()
    ours = regard.build("differential", dim=24, num_heads=2, form="v1", layer=3).double().eval()
    pair = [0, 2, 1, 3]  # theirs pairs head h with head h + H / 2, ours neighbours

    def moved(weight):
        return weight.unflatten(0, (4, 6))[pair].flatten(0, 1)

    lambdas = (theirs.lambda_q1, theirs.lambda_k1, theirs.lambda_q2, theirs.lambda_k2)
    with torch.no_grad():
        ours.query.weight.copy_(moved(theirs.q_proj.weight))
        ours.key.weight.copy_(moved(theirs.k_proj.weight))
        # A value is two of their heads' side by side.
        value = theirs.v_proj.weight.unflatten(0, (4, 6))
        ours.value.weight.copy_(torch.cat([value[[0, 2]], value[[1, 3]]]).flatten(0, 1))
        ours.out.weight.copy_(theirs.o_proj.weight)
        ours.factors.weight.copy_(torch.stack(lambdas))
    still = torch.ones(1, 11, 6, dtype=torch.float64), torch.zeros(1, 11, 6, dtype=torch.float64)
    expected, _ = theirs(X, position_embeddings=still, attention_mask=LATER)
    assert torch.allclose(ours(X, mask=CAUSAL), expected, atol=1e-6)  # float32 inside theirs


@pytest.mark.parametrize("name", ["forgetting", "native_sparse"])
def test_what_rides_beside_queries_and_keys_is_not_observed(name):
    mixer = built(name)
    seen = mixer.observe(X, mask=CAUSAL)
    torch.testing.assert_close(seen[:3], mixer.heads.split(X), rtol=0, atol=0)
