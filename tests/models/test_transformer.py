"""Encoder and decoder: their equations, padding and chunks, generation, cross-attention."""

import pytest
import torch

import regard.models as m
from regard.testing.laws.streaming import feed
from tests.models import small
from tests.models.small import prompts, ragged, ragged_targets, targets, transformer
from tests.models.stacks import stack_oracle

CROSS = "softmax linear efficient rfa performer compressed routing scored luong_local".split()
CASES = [{"cross_mixer": cross} for cross in CROSS]
CASES += [
    {"mixer": "linear", "decoder_mixer": "local"},
    {"mixer": "local", "decoder_mixer": "local", "position": "rotary"},
    {"decoder_layers": 3, "norm_first": False, "feed_forward": "relu", "feed_forward_bias": True},
    {f"{of}mixer_options": {"bias": True} for of in ("", "decoder_", "cross_")},
    {"target_vocab_size": 31, "position": "learned"},
]


@pytest.mark.parametrize("options", CASES, ids=str)
def test_is_its_equations_for_each_row_alone_and_in_chunks(options):
    model = small.shaken(m.TransformerConfig(**{**small.STACK, **options}))
    source, valid = prompts().masked_fill(~ragged(), -7), ragged()
    target, exists = targets().masked_fill(~ragged_targets(), -7), ragged_targets()
    if options.get("position") == "rotary":  # which goes to both self mixers
        mixers = (*model.encoder.mixers, *model.decoder.self_mixers)
        assert {mixer.options["position"] for mixer in mixers} == {"rotary"}
        assert model.decoder.cross_mixers[0].options["position"] is None
    logits = model(source, target, valid=valid, target_valid=exists)
    for row in range(3):
        alone = stack_oracle(model, source[row, valid[row]], target[row, exists[row]])
        torch.testing.assert_close(logits[row, exists[row]], alone, rtol=0, atol=1e-9)
    for sizes in ([6], [1] * 6, [2, 3, 1]):
        state = model.initial_state(source, valid=valid)
        streamed, _ = feed(model, target, state, sizes, valid=exists)
        torch.testing.assert_close(streamed[exists], logits[exists], rtol=0, atol=1e-9)


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


@pytest.mark.parametrize("cross", ["softmax", "scored", "linear"])
def test_cross_attention_is_that_of_every_decoder_block(cross):
    model = transformer(cross_mixer=cross)
    source, target, valid, exists = prompts(), targets(), ragged(), ragged_targets()
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
    padded = model.cross_attention(source, target, target_valid=exists)
    for row in range(3):
        alone = model.cross_attention(source[row : row + 1], target[row : row + 1, exists[row]])
        for whole, one in zip(padded, alone, strict=True):
            assert torch.allclose(whole[row][:, exists[row]], one[0], atol=1e-12)
            assert (whole[row][:, ~exists[row]] == 0).all()
    blocks = model.decoder.blocks
    blocks[1].cross_mixer = blocks[0].cross_mixer
    assert len(model.cross_attention(source, target)) == len(blocks)  # which may share a mixer
