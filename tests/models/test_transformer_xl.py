"""Transformer-XL as a whole: segments, memories, what it is for."""

import math
import pickle

import pytest
import torch
from torch import Tensor

from regard.models.transformer_xl import TransformerXL, TransformerXLConfig
from tests.models.small import VOCAB, assert_same, prompts, shaken
from tests.models.stacks import block, inside, norm, relative

SIZES = {"vocab_size": VOCAB, "dim": 12, "num_heads": 2, "num_layers": 3, "hidden_dim": 20}


def make(**options) -> TransformerXL:
    return shaken(TransformerXLConfig(**{**SIZES, **options}), by=0.1)


TEXT = prompts(23, 2)


def in_loops(model: TransformerXL, tokens: Tensor) -> Tensor:
    """Logits of one row [T], segment by segment, with a list of memories."""
    config, params = model.config, dict(model.named_parameters(remove_duplicate=False))
    L, M = config.segment_len, config.mem_len
    table = params["encoder.embedding.table.weight"]
    memories = [table.new_zeros(0, config.dim) for _ in range(config.num_layers)]
    logits = []
    for start in range(0, len(tokens), L):
        h = math.sqrt(config.dim) * table[tokens[start : start + L]]
        for n, mixer in enumerate(model.encoder.mixers):
            own, memory = inside(params, f"encoder.blocks.{n}."), memories[n]
            memories[n] = torch.cat([memory, h])[-M:].detach()
            if config.norm_first:
                memory = norm(own, "mixer_norm", memory)

            def mix(z, mixer=mixer, memory=memory):
                whole = torch.cat([memory, z])
                return relative(mixer, z, whole, lambda i, j: j <= len(memory) + i)

            h = block(own, h, {"mixer_norm": mix}, torch.relu, norm_first=config.norm_first)
        last = norm(params, "encoder.norm", h) if config.norm_first else h
        logits.append(last @ table.T)
    return torch.cat(logits)


@pytest.mark.parametrize(
    "options",
    [
        {"segment_len": 5, "mem_len": 7},
        {"segment_len": 4, "mem_len": 3, "clamp_len": 2, "untie": True},
        {"segment_len": 6, "mem_len": 5, "same_length": True},
        {"segment_len": 5, "mem_len": 7, "norm_first": True},
    ],
    ids=str,
)
def test_is_its_equation_in_loops(options):
    model, tokens = make(**options), TEXT[:, :17]
    found = model(tokens)
    wanted = torch.stack([in_loops(model, row) for row in tokens])
    assert_same(found, wanted, model)


@pytest.mark.parametrize("padded", [False, True])
def test_a_memory_is_not_stale_after_a_step(padded):
    """The memory of the first layer is what was embedded, whatever became of the layer's weights."""
    model = make(segment_len=12, mem_len=23, num_layers=1, norm_first=True)
    valid = torch.rand(2, 23, generator=torch.Generator().manual_seed(4)) < (0.7 if padded else 2)
    _, state = model.extend(TEXT[:, :12], model.initial_state(2), valid=valid[:, :12])
    for parameter in model.encoder.blocks.parameters():
        parameter.data.mul_(1.5).add_(0.1)
    found, _ = model.extend(TEXT[:, 12:], state, valid=valid[:, 12:])
    whole = make(segment_len=23, mem_len=1, num_layers=1, norm_first=True)
    whole.load_state_dict(model.state_dict())
    wanted = whole(TEXT, valid=valid)[:, 12:]
    here = valid[:, 12:]
    torch.testing.assert_close(found[here], wanted[here], rtol=0, atol=1e-11)


def test_a_stream_goes_on_where_it_stopped():
    model = make(segment_len=4, mem_len=6)
    state, logits = model.initial_state(2), []
    for part in TEXT.split(8, dim=1):
        found, state = model.extend(part, state)
        logits.append(found)
    torch.testing.assert_close(torch.cat(logits, 1), model(TEXT), rtol=0, atol=1e-12)
    assert [memory.memory.shape for memory in state.blocks] == [(2, 6, 12)] * 3
    assert not any(memory.memory.requires_grad for memory in state.blocks)
    again = make(segment_len=4, mem_len=6, checkpoint=True)
    found, _ = again.extend(TEXT, again.initial_state(2), donate=True)
    found.sum().backward()
    torch.testing.assert_close(found, model(TEXT), rtol=0, atol=1e-12)


def test_layers_share_their_biases_unless_untied():
    shared, own = make(), make(untie=True)
    count = sum(p.numel() for p in own.parameters()) - sum(p.numel() for p in shared.parameters())
    assert count == 2 * 2 * 12
    loaded, moved = make(), make().to_empty(device="meta")
    loaded.load_state_dict(shared.state_dict(), assign=True)
    for model in (shared, loaded, moved, pickle.loads(pickle.dumps(shared))):
        first, *_, last = (mixer.position for mixer in model.encoder.mixers)
        assert last.u is first.u and last.v is first.v
