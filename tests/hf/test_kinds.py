"""Kinds of checkpoint with a layout or a randomness of their own, against the classes that wrote them."""

import pytest
import torch

from tests.hf.small import BERT, as_stack, built, greedy, model, widened
from tests.hf.test_load import assert_same_gradient, assert_same_maps

import regard.hf  # isort: skip


@pytest.mark.parametrize("padded", [False, True])
def test_bigbirds_blocks_given_the_same_random_ones(padded):
    sizes = {"block_size": 2, "num_random_blocks": 1, "attention_type": "block_sparse"}
    # In evaluation it draws block 0 alone.
    original = built("BigBirdModel", BERT, **sizes).train()
    ours = as_stack(original)
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
    valid |= not padded
    given, masks = ({"attention_mask": valid.long()}, {"valid": valid}) if padded else ({}, {})
    want = original(ids, **given, output_attentions=True)
    found = ours(ids, **masks)
    found, expected = found[valid], want.last_hidden_state[valid]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert_same_maps(ours.attention_maps(ids, **masks), want.attentions, valid)
    assert_same_gradient(ours, original, found, expected)


RECURRENT = ("qwen3_next", "kimi_linear", "kimi_linear_rank", "mamba2")


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_stacks_are_exact_and_stream(name, monkeypatch):
    """Logits, padded too, over three chunks of the delta rule; streams in unequal parts; and greedy decoding. Their angles are in float32."""
    original = model(name)
    ours = as_stack(original)
    assert not ours.left
    widened(original, monkeypatch)
    ids = torch.randint(3, 30, (2, 150), generator=torch.Generator().manual_seed(1))
    valid = torch.arange(150) < torch.tensor([[150], [97]])
    want = original(ids, attention_mask=valid.long()).logits
    found = ours.head(ours(ids, valid=valid))
    torch.testing.assert_close(found[valid], want[valid], rtol=0, atol=1e-8)
    state, parts = ours.initial_state(2), []
    for part, real in zip(ids.split([1, 70, 79], 1), valid.split([1, 70, 79], 1), strict=True):
        hidden, state = ours.extend(part, state, valid=real)
        parts.append(ours.head(hidden))
    torch.testing.assert_close(torch.cat(parts, 1)[valid], want[valid], rtol=0, atol=1e-8)
    tokens = greedy(regard.hf.wrap(ours), ids[:, :9], new=6)
    assert torch.equal(tokens, greedy(original, ids[:, :9], new=6))
