"""Whose keys a module mixes: cross attention is told from self-mixing by what is passed, at equal lengths too."""

import copy
import importlib

import pytest
import torch
from torch import nn

from tests.hf import small
from tests.hf.small import SEQ2SEQ, SIZES, TOKENS, transformers

import regard.hf  # isort: skip
from regard import UnsupportedError
from regard.hf import AttentionConfig, attention
from regard.hf.sources import keys_of_others

regard.hf.register()
WIDE = AttentionConfig("local", {"window_size": 64}, cross=AttentionConfig("softmax"))
regard.hf.register("wide", WIDE)
IMPLEMENTATIONS = ("regard_softmax", "regard_wide")
"""A window over everything computes what softmax does; it is told what is cross attention, softmax need not be."""

DECODER = {**SIZES, **TOKENS, "is_decoder": True, "add_cross_attention": True}
DECODER["hidden_dropout_prob"] = 0.0
MOONSHINE = TOKENS | dict(hidden_size=24, intermediate_size=32, decoder_start_token_id=1)
MOONSHINE |= dict(encoder_num_hidden_layers=1, decoder_num_hidden_layers=2)
MOONSHINE |= dict(encoder_num_attention_heads=4, decoder_num_attention_heads=4)
MODELS = {
    "MoonshineForConditionalGeneration": MOONSHINE,
    "BartForConditionalGeneration": SEQ2SEQ,
    "Speech2TextForConditionalGeneration": SEQ2SEQ,
    "WhisperForConditionalGeneration": {**SEQ2SEQ, "suppress_tokens": None, "begin_suppress_tokens": None},
    "T5ForConditionalGeneration": {**small.T5, "num_layers": 1},
    "BertLMHeadModel": DECODER,
    "GPT2LMHeadModel": {**small.GPT2, "add_cross_attention": True},
}  # fmt: skip
S = 6
PRESENT = torch.tensor([[1] * S, [1] * 4 + [0] * 2])


def decoder(name: str, implementation: str) -> nn.Module:
    made = small.built(name, MODELS[name])
    made.set_attn_implementation(implementation)
    return made


def states(num_keys: int = S) -> torch.Tensor:
    return torch.randn(2, num_keys, 24, generator=torch.Generator().manual_seed(1)).double()


def tokens(T: int) -> torch.Tensor:
    return torch.randint(3, 30, (2, T), generator=torch.Generator().manual_seed(2))


def decoded(made: nn.Module, ids: torch.Tensor, present: torch.Tensor = PRESENT, **cache):
    """Logits of these target tokens for an encoder's padded output."""
    seen = states(present.shape[1])
    if not made.config.is_encoder_decoder:
        return made(ids, encoder_hidden_states=seen, encoder_attention_mask=present, **cache)
    output = transformers.modeling_outputs.BaseModelOutput(last_hidden_state=seen)
    given = {"attention_mask": present}
    if "Moonshine" in type(made).__name__:
        module = importlib.import_module(type(made).__module__)
        output = module.MoonshineEncoderModelOutput(seen, attention_mask=present)
    elif "Whisper" in type(made).__name__:
        given = {}  # its decoder takes no mask of the encoder's output
    elif "Speech2Text" in type(made).__name__:
        given["attention_mask"] = present.repeat_interleave(4, dim=1)
    return made(encoder_outputs=output, decoder_input_ids=ids, **given, **cache)


@pytest.fixture
def seen(monkeypatch):
    """Module -> what was seen of the source of its keys."""
    found = {}

    def noted(module):
        found[module] = keys_of_others(module)
        return found[module]

    monkeypatch.setattr(attention, "keys_of_others", noted)
    return found


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("T, new, keys", [(1, 1, S), (S, S, S), (S + 3, S + 3, S), (8, 1, S), (8, 1, 1)])  # fmt: skip
def test_a_padded_encoder_at_any_length(name, T, new, keys, seen):
    """At once, and token by token past the length of the encoder; an encoder of a single token is as long as every step."""
    if "Speech2Text" in name and keys == 1:
        keys = 2  # it halves lengths twice, rounding up: no mask has one
    ids, present, names = tokens(T), PRESENT[:, :keys], {}
    want = decoded(decoder(name, "eager"), ids, present).logits
    for implementation in IMPLEMENTATIONS[: 1 if "T5" in name else 2]:
        made, cache, steps = decoder(name, implementation), None, []
        names |= {module: where for where, module in made.named_modules()}
        for step in ids.split(new, dim=1):
            output = decoded(made, step, present, past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            steps.append(output.logits)
        torch.testing.assert_close(torch.cat(steps, 1), want, rtol=1e-5, atol=1e-6)
    assert seen
    across = "encoder_attn", "cross", "EncDec"
    for module, others in seen.items():
        assert others is any(part in names[module] for part in across)


HEADS = {"hidden_size": 24, "num_attention_heads": 4, "attention_probs_dropout_prob": 0.0}
A, B, POOLED = states(S), states(S).flip(1), torch.zeros(2, 1, 1, S, dtype=torch.float64)
POOLED[1, ..., 4:] = torch.finfo(torch.float64).min
CROSS = {"hidden_states": A, "encoder_hidden_states": B}
QFORMER = transformers.Blip2QFormerConfig(**HEADS, encoder_hidden_size=24)
GROUPS = HEADS | {"num_key_value_heads": 4}
MLLAMA = transformers.models.mllama.MllamaTextConfig(**GROUPS, cross_attention_layers=[0])
MOBILE = transformers.MobileBertConfig(**HEADS, true_hidden_size=24)
MOLMO = transformers.models.molmo2.Molmo2VisionConfig(**GROUPS, head_dim=6)
TAM = transformers.models.edgetam.EdgeTamMaskDecoderConfig(**HEADS)
PARTS = {
    # what is seen, the module and its constructor's arguments, its call
    "EdgeTamAttention": (
        None, (TAM, 1), {"query": A[:, None], "key": B[:, None], "value": B[:, None], "attention_similarity": POOLED},
    ),
    "Molmo2VisionAttention": (None, (MOLMO,), CROSS | {"attention_mask": POOLED}),
    "Molmo2VisionAttention alone": (False, (MOLMO,), {"hidden_states": A}),
    "Blip2QFormerMultiHeadAttention": (True, (QFORMER, True), CROSS | {"encoder_attention_mask": POOLED}),
    "MllamaTextCrossAttention": (
        True, (MLLAMA, 0), {"hidden_states": A, "cross_attention_states": B, "attention_mask": POOLED},
    ),
    "MobileBertSelfAttention": (False, (MOBILE,), {"query_tensor": A, "key_tensor": A, "value_tensor": B}),
    "MobileBertSelfAttention other keys": (
        None, (MOBILE,), {"query_tensor": A, "key_tensor": B, "value_tensor": B},
    ),
}  # fmt: skip


def part(name: str, implementation: str) -> nn.Module:
    """One attention module of Transformers."""
    config, *arguments = copy.deepcopy(PARTS[name][1])
    config._attn_implementation = implementation
    module = importlib.import_module(type(config).__module__.replace("configuration", "modeling"))
    torch.manual_seed(0)
    return getattr(module, name.split()[0])(config, *arguments).eval().double()


@pytest.mark.parametrize("name", PARTS)
def test_modules_that_do_not_name_it_so(name, seen):
    """softmax needs no knowledge; a window is refused, or computes the same where it may."""
    others, _, call = PARTS[name]
    want = part(name, "eager")(**call)[0]
    wide = part(name, "regard_wide")
    torch.testing.assert_close(part(name, "regard_softmax")(**call)[0], want, rtol=1e-5, atol=1e-6)
    if others is None:
        said = f"local cannot be the attention of {name.split()[0]}: whe"
        with pytest.raises(UnsupportedError, match=said):
            wide(**call)
    else:
        torch.testing.assert_close(wide(**call)[0], want, rtol=1e-5, atol=1e-6)
    assert set(seen.values()) == {others}


def test_cached_keys_of_others_are_not_taken_for_own():
    """Of this module a later step passes no states: they are in the cache."""
    name, cache = "MllamaTextCrossAttention", transformers.DynamicCache()
    call = dict(PARTS[name][-1], past_key_values=cache)
    later = dict(call, hidden_states=A.cos(), cross_attention_states=None)
    part(name, "regard_wide")(**call)
    with pytest.raises(UnsupportedError, match="6 queries and 6 keys are of the same toke"):
        part(name, "regard_wide")(**later)
    got, want = (part(name, one)(**later)[0] for one in ("regard_softmax", "eager"))
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_a_module_that_changes_its_arguments_is_refused():
    class Changing(nn.Module):
        is_causal = False

        def forward(self, hidden_states, key_value_states=None):
            if key_value_states is None:
                key_value_states = hidden_states
            hidden_states = hidden_states.tanh()
            both = hidden_states, key_value_states
            q, k = (z.unflatten(2, (4, 6)).transpose(1, 2) for z in both)
            return transformers.AttentionInterface()["regard_wide"](self, q, k, k, None)[0]

    for states_of_keys in (None, A, B):
        with pytest.raises(UnsupportedError, match="local cannot be the attention of Changing"):
            Changing()(A, states_of_keys)


def test_no_registered_mechanism_differs_on_a_context():
    """So that softmax, linear and the like need not know whose keys they are given."""
    valid = torch.arange(9) < torch.tensor([[9], [5]])
    x, checked = torch.randn(2, 9, 24, dtype=torch.float64), 0
    for name in regard.hf.register():
        config = AttentionConfig(name.removeprefix("regard_"))
        if not attention._same_as_context(config):
            continue
        mixer = regard.build(config.mixer, dim=24, num_heads=4, max_len=9).double()
        mask = regard.Mask(valid=valid)
        own, given = mixer(x, mask=mask), mixer(x, context=x, mask=mask)
        torch.testing.assert_close(given[valid], own[valid])
        checked += 1
    assert checked == 5
    assert not attention._same_as_context(AttentionConfig("softmax", {"position": "rotary"}))
