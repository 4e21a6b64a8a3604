import pytest
import torch

from regard.core import Mask, UnsupportedError
from tests.models.small import VOCAB, prompts, ragged, ragged_targets, targets, transformer


def by_hand(model, source, target, valid):
    """The decoder's blocks, written out: pre-norm, no dropout."""
    memory = model.encoder(source, valid=valid)
    x = model.target_embedding(target, torch.arange(target.shape[1])[None], None)
    maps = []
    for block in model.decoder.blocks:
        x = x + block.self_mixer(block.self_norm(x), mask=Mask(causal=True))
        query = block.cross_norm(x)
        maps.append(block.cross_mixer.attention_map(query, context=memory, mask=Mask(valid=valid)))
        x = x + block.cross_mixer(query, context=memory, mask=Mask(valid=valid))
        x = x + block.feed_forward(block.feed_forward_norm(x))
    assert torch.allclose(
        model._logits(model.decoder.norm(x)), model(source, target, valid=valid), atol=1e-10
    )
    return maps


@pytest.mark.parametrize("cross", ["softmax", "scored", "linear"])
def test_cross_attention_is_that_of_every_decoder_block(cross):
    model = transformer(cross_mixer=cross)
    source, target, valid = prompts(), targets(), ragged()
    found = model.cross_attention(source, target, valid=valid)
    for ours, theirs in zip(found, by_hand(model, source, target, valid), strict=True):
        assert ours.shape == (3, 3, 6, 7)
        assert torch.allclose(ours, theirs, atol=1e-12)
        assert (ours.transpose(2, 3)[(~valid)[:, None].expand(3, 3, 7)] == 0).all()
        assert ours.std() > 0
    assert all(not mixer._forward_pre_hooks for mixer in model.decoder.cross_mixers)


def test_padded_targets_get_the_maps_that_they_get_alone():
    model = transformer()
    source, target, valid = prompts(), targets(), ragged_targets()
    for row in range(3):
        alone = model.cross_attention(source[row : row + 1], target[row : row + 1, valid[row]])
        padded = model.cross_attention(source, target, target_valid=valid)
        for whole, one in zip(padded, alone, strict=True):
            assert torch.allclose(whole[row][:, valid[row]], one[0], atol=1e-12)
            assert (whole[row][:, ~valid[row]] == 0).all()


def test_a_cross_mixer_without_a_map_says_why():
    model = transformer(cross_mixer="compressed")
    with pytest.raises(UnsupportedError, match="a slot mixes the channels"):
        model.cross_attention(prompts(), torch.randint(0, VOCAB, (3, 4)))
