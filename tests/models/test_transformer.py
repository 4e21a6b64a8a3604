"""Encoder and decoder: torch's own, padding and chunks, generation, cross-attention."""

import math

import pytest
import torch
from torch import nn

import regard.models as m
from tests.models.small import prompts, ragged, ragged_targets, targets, transformer
from tests.models.stacks import place

CROSS = "softmax linear efficient rfa performer compressed routing scored luong_local".split()
MIXERS = [("softmax", "softmax", cross, "sinusoidal") for cross in CROSS]
MIXERS += [("linear", "local", "softmax", "sinusoidal"), ("local", "local", "softmax", "rotary")]
COMMON = {"out_proj": "heads.out", "linear1": "feed_forward.value", "linear2": "feed_forward.out"}
NAMES = {
    "encoder": {"self_attn": "mixer", "norm1": "mixer_norm", "norm2": "feed_forward_norm"} | COMMON,
    "decoder": {"self_attn": "self_mixer", "multihead_attn": "cross_mixer"}
    | {"norm1": "self_norm", "norm2": "cross_norm", "norm3": "feed_forward_norm"}
    | COMMON,
}
"""Stack -> torch's name of a part: ours."""


def copy_layers(ours: nn.Module, theirs: nn.Module, names: dict[str, str]) -> None:
    state = {}
    for name, z in theirs.layers.state_dict().items():
        for old, new in names.items():
            name = name.replace(f".{old}.", f".{new}.")
        if "in_proj_" in name:
            parts = zip(("query", "key", "value"), z.chunk(3), strict=True)
            state |= {name.replace("in_proj_", f"heads.{own}."): part for own, part in parts}
        else:
            state[name] = z
    ours.blocks.load_state_dict(state)
    if theirs.norm is not None:
        ours.norm.load_state_dict(theirs.norm.state_dict())


def embedded(model: m.Transformer, tokens: torch.Tensor) -> torch.Tensor:
    table = model.encoder.embedding.table.weight.detach()
    places = [place({}, model.config, t) for t in range(tokens.shape[1])]
    return math.sqrt(model.config.dim) * table[tokens] + torch.stack(places)


@pytest.mark.parametrize("norm_first", [True, False])
def test_is_torchs_transformer(norm_first):
    options = {f"{of}mixer_options": {"bias": True} for of in ("", "decoder_", "cross_")}
    options |= {"norm_first": norm_first, "feed_forward": "relu", "feed_forward_bias": True}
    model = transformer(hidden_dim=40, decoder_layers=3, **options)
    layer = {"d_model": 24, "nhead": 3, "dim_feedforward": 40, "dropout": 0.0}
    layer |= {"norm_first": norm_first, "batch_first": True, "dtype": torch.float64}

    def last() -> nn.LayerNorm | None:
        return nn.LayerNorm(24, dtype=torch.float64) if norm_first else None

    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**layer), 2, last(), enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**layer), 3, last())
    with torch.no_grad():
        for p in (*encoder.parameters(), *decoder.parameters()):
            p.normal_(std=0.3)
        copy_layers(model.encoder, encoder, NAMES["encoder"])
        copy_layers(model.decoder, decoder, NAMES["decoder"])
    source, target = prompts(), targets()
    valid = torch.arange(7) < torch.tensor([[7], [4], [1]])
    target_valid = torch.arange(6) < torch.tensor([[2], [6], [5]])
    memory = encoder(embedded(model, source), src_key_padding_mask=~valid)
    hidden = decoder(
        embedded(model, target),
        memory,
        tgt_mask=torch.ones(6, 6, dtype=torch.bool).triu(1),
        tgt_key_padding_mask=~target_valid,
        memory_key_padding_mask=~valid,
    )
    wanted = hidden @ model.encoder.embedding.table.weight.T
    logits = model(source, target, valid=valid, target_valid=target_valid)
    torch.testing.assert_close(logits[target_valid], wanted[target_valid], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("mixer, decoder, cross, position", MIXERS)
def test_padding_on_either_side_and_chunking_change_nothing(mixer, decoder, cross, position):
    mixers = {"mixer": mixer, "decoder_mixer": decoder, "cross_mixer": cross}
    model = transformer(position=position, **mixers)
    source, valid = prompts().masked_fill(~ragged(), -7), ragged()
    target, exists = targets().masked_fill(~ragged_targets(), -7), ragged_targets()
    logits = model(source, target, valid=valid, target_valid=exists)
    for row in range(3):
        alone = model(source[row : row + 1, valid[row]], target[row : row + 1, exists[row]])
        torch.testing.assert_close(logits[row, exists[row]], alone[0], rtol=0, atol=1e-9)
    for sizes in ([6], [1] * 6, [2, 3, 1]):
        state, parts = model.initial_state(source, valid=valid), []
        for chunk, part in zip(target.split(sizes, 1), exists.split(sizes, 1), strict=True):
            found, state = model.extend(chunk, state, valid=part)
            parts.append(found)
        streamed = torch.cat(parts, 1)[exists]
        torch.testing.assert_close(streamed, logits[exists], rtol=0, atol=1e-9)


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "none"])
def test_padded_batch_generates_what_singles_generate(position):
    model, index = transformer(position=position, target_vocab_size=13), torch.tensor([2, 0])
    source, valid, start = prompts(), ragged(), targets() % 13
    asked, started = {"max_new_tokens": 6, "eos": 3}, ragged_targets()
    given = {"valid": valid, "start_valid": started, **asked}
    greedy = model.generate(source, start, **given)
    beams = model.beam_search(source, start, beams=3, **given)
    for row in range(3):
        one = (source[row : row + 1, valid[row]], start[row : row + 1, started[row]])
        alone = model.generate(*one, **asked)
        assert torch.equal(greedy[row, : alone.shape[1]], alone[0])
        alone = model.beam_search(*one, beams=3, **asked)
        assert torch.equal(beams.tokens[row, :, : alone.tokens.shape[2]], alone.tokens[0])
        torch.testing.assert_close(beams.scores[row], alone.scores[0], rtol=0, atol=1e-10)
    _, state = model.extend(start[:, :2], model.initial_state(source))
    logits, _ = model.extend(start[index, 2:], m.reorder(state, index))
    wanted = model(source, start)[index, 2:]
    torch.testing.assert_close(logits, wanted, rtol=0, atol=1e-10)


def test_rotary_positions_go_to_both_self_mixers():
    model = transformer(position="rotary", mixer="local")
    assert model.encoder.mixers[0].options["position"] == "rotary"
    assert model.decoder.self_mixers[0].options["position"] == "rotary"
    assert model.decoder.cross_mixers[0].options["position"] is None


@pytest.mark.parametrize("cross", ["softmax", "scored", "linear"])
def test_cross_attention_is_that_of_every_decoder_block(cross):
    model = transformer(cross_mixer=cross)
    source, target, valid = prompts(), targets(), ragged()
    mixers, maps = model.decoder.cross_mixers, []

    def seen(mixer, args, given):
        maps.append(mixer.attention_map(*args, **given))

    hooks = [mixer.register_forward_pre_hook(seen, with_kwargs=True) for mixer in mixers]
    model(source, target, valid=valid)
    for hook in hooks:
        hook.remove()
    found = model.cross_attention(source, target, valid=valid)
    for ours, theirs in zip(found, maps, strict=True):
        assert ours.shape == (3, 3, 6, 7) and ours.std() > 0
        assert torch.allclose(ours, theirs, atol=1e-12)
        assert (ours.transpose(2, 3)[(~valid)[:, None].expand(3, 3, 7)] == 0).all()
    assert all(not mixer._forward_pre_hooks for mixer in mixers)


def test_padded_targets_get_the_maps_that_they_get_alone():
    model = transformer()
    source, target, valid = prompts(), targets(), ragged_targets()
    padded = model.cross_attention(source, target, target_valid=valid)
    for row in range(3):
        alone = model.cross_attention(source[row : row + 1], target[row : row + 1, valid[row]])
        for whole, one in zip(padded, alone, strict=True):
            assert torch.allclose(whole[row][:, valid[row]], one[0], atol=1e-12)
            assert (whole[row][:, ~valid[row]] == 0).all()


def test_a_source_without_tokens_is_finite():
    valid = ragged()
    valid[1] = False
    assert transformer()(prompts(), targets(), valid=valid).isfinite().all()
