"""Kinds of checkpoint with a layout or a randomness of their own, against the classes that wrote them."""

import pytest
import torch

from tests.hf.small import transformers
from tests.hf.test_load import BERT, XLNET, theirs, tokens

import regard.hf  # isort: skip
from regard import ShapeError

# ---------------------------------------------------------------------- BigBird


@pytest.mark.parametrize("padded", [False, True])
def test_bigbirds_blocks_given_the_same_random_ones(padded):
    sizes = {"block_size": 2, "num_random_blocks": 1, "attention_type": "block_sparse"}
    torch.manual_seed(0)
    config = transformers.BigBirdConfig(**{**BERT, **sizes})
    original = (
        transformers.BigBirdModel(config).double().train()
    )  # in evaluation it draws block 0 alone
    ours = regard.hf.load(original.state_dict(), config.to_dict())
    T, blocks = 20, 10
    for layer, mixer in zip(original.encoder.layer, ours.mixers, strict=True):
        table = torch.randint(1, blocks - 1, (4, 32, 1), generator=torch.Generator().manual_seed(2))
        own = torch.arange(32)[:, None]
        table = torch.where((table - own).abs() > 1, table, (own + 3) % 6 + 1)
        table = torch.where((table - own).abs() > 1, table, (own + 4) % 6 + 1)
        mixer.random_blocks.copy_(table)
        layer.attention.self._bigbird_block_rand_mask_with_head = lambda table=table, **_: [
            rows[1 : blocks - 1].numpy() for rows in table
        ]
    ids = torch.randint(3, 30, (2, T), generator=torch.Generator().manual_seed(1))
    valid = torch.arange(T) < torch.tensor([[T], [T - 1]])
    given = {"attention_mask": valid.long()} if padded else {}
    want = original(ids, **given, output_attentions=True)
    mask = {"valid": valid} if padded else {}
    keep = valid if padded else torch.ones_like(valid)
    found = ours(ids, **mask)
    torch.testing.assert_close(found[keep], want.last_hidden_state[keep], rtol=1e-5, atol=1e-5)
    maps = ours.attention_maps(ids, **mask)
    for ours_map, their_map in zip(maps, want.attentions, strict=True):
        rows = keep[:, None, :, None].expand_as(their_map)
        torch.testing.assert_close(ours_map[rows], their_map[rows], rtol=1e-5, atol=1e-5)
    table = original.get_input_embeddings().weight
    gradient = torch.autograd.grad(found[keep].sin().sum(), [ours.embedding.word.weight])[0]
    expected = torch.autograd.grad(want.last_hidden_state[keep].sin().sum(), [table])[0]
    assert (gradient - expected).abs().max() <= 1e-5 * expected.abs().max() > 0


# ---------------------------------------------------------------------- XLNet


@pytest.mark.parametrize("clamp_len", [-1, 3])
@pytest.mark.parametrize("padded", [False, True])
def test_xlnets_segments_and_memory(padded, clamp_len):
    torch.manual_seed(0)
    config = {**XLNET, "mem_len": 9, "reuse_len": 8, "clamp_len": clamp_len}
    original = transformers.XLNetModel(transformers.XLNetConfig(**config)).double().eval()
    with torch.no_grad():
        for parameter in original.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    ours = regard.hf.load(original.state_dict(), original.config.to_dict())
    assert not ours.left
    ids, valid = tokens()
    types = (torch.arange(11) > 4).long().expand(2, -1)
    given = {"attention_mask": valid.double()} if padded else {}
    keep = valid if padded else torch.ones_like(valid)
    mask = {"valid": valid} if padded else {}
    want = original(ids, token_type_ids=types, **given).last_hidden_state
    found = ours(ids, types=types, **mask)
    torch.testing.assert_close(found[keep], want[keep])
    table = original.get_input_embeddings().weight
    gradient = torch.autograd.grad(found[keep].sin().sum(), [ours.embedding.word.weight])[0]
    expected = torch.autograd.grad(want[keep].sin().sum(), [table])[0]
    assert (gradient - expected).abs().max() <= 1e-6 * expected.abs().max()
    memory, mems = None, None
    for part in (ids, ids.flip(1), ids.roll(3, 1)):
        want = original(part, token_type_ids=types, mems=mems, use_mems=True, **given)
        found, memory = ours.extend(part, memory, types=types, **mask)
        torch.testing.assert_close(found[keep], want.last_hidden_state[keep])
        mems = want.mems
    assert memory[0].shape == (2, 9, 24)
    with pytest.raises(ShapeError, match=r"xlnet: a memory must hold 2 tensors \[2, M, 24\]"):
        ours.extend(ids, memory[:1])


@pytest.mark.parametrize("padded", [False, True])
def test_xlnets_query_stream(padded):
    """With a memory, since Transformers lets a token that may see nothing attend to everything, itself too."""
    torch.manual_seed(0)
    original = transformers.XLNetLMHeadModel(transformers.XLNetConfig(**XLNET, mem_len=9))
    original.eval()
    with torch.no_grad():
        for parameter in original.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    ours = regard.hf.load(original.state_dict(), original.config.to_dict())
    assert not ours.left
    ids, valid = tokens()
    B, T = ids.shape
    types = (torch.arange(T) > 4).long().expand(B, -1)
    rank = torch.rand(B, T).argsort(1)
    sees = rank[:, None, :] < rank[:, :, None]
    given = {"attention_mask": valid.float()} if padded else {}
    keep = valid if padded else torch.ones_like(valid)
    mask = {"valid": valid} if padded else {}
    places = torch.eye(T).expand(B, -1, -1)
    mems = original(ids.flip(1), use_mems=True).mems
    _, memory = ours.extend(ids.flip(1))
    want = original(ids, token_type_ids=types, mems=mems, use_mems=True, perm_mask=(~sees).float(), target_mapping=places, **given)  # fmt: skip
    found, _ = ours.predict(ids, sees, memory, types=types, **mask)
    torch.testing.assert_close(ours.head(found)[keep], want.logits[keep], rtol=1e-5, atol=1e-5)
    alone = ours.predict(ids, torch.zeros_like(sees))[0]  # sees nothing: all places are alike
    torch.testing.assert_close(alone[0, 0], alone[0, 1])
    with pytest.raises(ShapeError, match=r"predict: sees .* must be a dense bool tensor \[B T T\]"):
        ours.predict(ids, sees[:, :5])


def test_a_table_of_positions_that_is_too_short_is_named():
    ours = regard.hf.load((made := theirs("gpt2")).state_dict(), made.config.to_dict())
    with pytest.raises(ShapeError, match="does not support 65 tokens: its table has 64 positions"):
        ours(torch.ones(1, 65, dtype=torch.long))
