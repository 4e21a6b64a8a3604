"""Transformer-XL and XLNet as wholes: segments and memories, two streams in any order, pre-training and fine-tuning."""

import math
import pickle
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from regard.models.generation import reorder
from regard.models.transformer_xl import TransformerXL, TransformerXLConfig
from regard.models.xlnet import XLNet, XLNetConfig
from regard.models.xlnet_classifier import XLNetClassifierConfig
from regard.testing.laws.streaming import feed
from tests.models.small import VOCAB, assert_same, prompts, shaken
from tests.models.stacks import block, gelu, inside, norm, relative

SIZES = {"vocab_size": VOCAB, "dim": 12, "num_heads": 2, "num_layers": 2, "hidden_dim": 20}
SEGMENTS = [(5, 7, {}), (4, 3, {"clamp_len": 2, "untie": True}), (6, 5, {"same_length": True})]
CASES = [
    ({}, 0.0, False),
    ({"mem_len": 5, "clamp_len": 4}, 0.4, False),
    ({"mem_len": 9}, 0.5, True),
]
TEXT = prompts(23, 2)


def transformer_xl(**options) -> TransformerXL:
    return shaken(TransformerXLConfig(**{**SIZES, "num_layers": 3, **options}), by=0.1)


def xlnet(**options) -> XLNet:
    return shaken(XLNetConfig(**{**SIZES, **options}))


def segments_in_loops(model: TransformerXL, tokens: Tensor) -> Tensor:
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


@pytest.mark.parametrize("segment_len, mem_len, more", [*SEGMENTS, (5, 7, {"norm_first": True})])
def test_segments_are_their_equation_in_loops(segment_len, mem_len, more):
    model = transformer_xl(segment_len=segment_len, mem_len=mem_len, **more)
    tokens = TEXT[:, :17]
    found = model(tokens)
    wanted = torch.stack([segments_in_loops(model, row) for row in tokens])
    assert_same(found, wanted, model)


@pytest.mark.parametrize("padded", [False, True])
def test_a_memory_is_not_stale_after_a_step(padded):
    """The memory of the first layer is what was embedded, whatever became of the layer's weights."""
    model = transformer_xl(segment_len=12, mem_len=23, num_layers=1, norm_first=True)
    valid = torch.rand(2, 23, generator=torch.Generator().manual_seed(4)) < (0.7 if padded else 2)
    _, state = model.extend(TEXT[:, :12], model.initial_state(2), valid=valid[:, :12])
    for parameter in model.encoder.blocks.parameters():
        parameter.data.mul_(1.5).add_(0.1)
    found, _ = model.extend(TEXT[:, 12:], state, valid=valid[:, 12:])
    whole = transformer_xl(segment_len=23, mem_len=1, num_layers=1, norm_first=True)
    whole.load_state_dict(model.state_dict())
    wanted = whole(TEXT, valid=valid)[:, 12:]
    here = valid[:, 12:]
    torch.testing.assert_close(found[here], wanted[here], rtol=0, atol=1e-11)


def test_a_stream_goes_on_where_it_stopped():
    model = transformer_xl(segment_len=4, mem_len=6)
    found, state = feed(model, TEXT, model.initial_state(2), (8, 8, 7))
    torch.testing.assert_close(found, model(TEXT), rtol=0, atol=1e-12)
    assert [memory.memory.shape for memory in state.blocks] == [(2, 6, 12)] * 3
    assert not any(memory.memory.requires_grad for memory in state.blocks)
    again = transformer_xl(segment_len=4, mem_len=6, checkpoint=True)
    found, _ = again.extend(TEXT, again.initial_state(2), donate=True)
    found.sum().backward()
    torch.testing.assert_close(found, model(TEXT), rtol=0, atol=1e-12)


def test_layers_share_their_biases_unless_untied():
    shared, own = transformer_xl(), transformer_xl(untie=True)
    count = sum(p.numel() for p in own.parameters()) - sum(p.numel() for p in shared.parameters())
    assert count == 2 * 2 * 12
    loaded, moved = transformer_xl(), transformer_xl().to_empty(device="meta")
    loaded.load_state_dict(shared.state_dict(), assign=True)
    for model in (shared, loaded, moved, pickle.loads(pickle.dumps(shared))):
        first, *_, last = (mixer.position for mixer in model.encoder.mixers)
        assert last.u is first.u and last.v is first.v


def draw(*shape: int, below: int = VOCAB, seed: int = 3) -> Tensor:
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(seed))


def orders(B: int, T: int, context: float = 0.0, seed: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    rank = torch.rand(B, T, generator=generator).argsort(1)
    return rank.masked_fill(torch.rand(B, T, generator=generator) < context, -1)


def streams_in_loops(model, tokens, order, memories, segments=None):
    """Logits of one row [T] and its memories: explicit masks, and two attentions by their oracle."""
    config, params = model.config, dict(model.named_parameters())
    T = len(tokens)
    table = params["trunk.table.weight"]
    rank = order.tolist()

    def before(i: int, j: int) -> bool:
        return rank[j] == -1 or (rank[i] != -1 and rank[j] < rank[i])

    h = table[tokens]
    g = params["query"].expand(T, -1)
    after = []
    for n, (memory, layer) in enumerate(zip(memories, model.trunk.layers, strict=True)):
        m, own = len(memory), inside(params, f"trunk.layers.{n}.")
        seen, plan = torch.cat([memory, h]), {}
        if segments is not None:
            keys = torch.cat([segments.new_zeros(m), segments])
            plan = {"query": segments[None], "key": keys[None]}

        def stream(x, sees, seen=seen, m=m, own=own, mixer=layer.mixer, plan=plan):
            def mix(z):
                return relative(mixer, z, seen, lambda i, j: j < m or sees(i, j - m), **plan)

            return block(own, x, {"mixer_norm": mix}, gelu, norm_first=False)

        after.append(seen[-config.mem_len :].detach())
        g, h = stream(g, before), stream(h, lambda i, j: before(i, j) or i == j)
    return g @ table.T + params["bias"], after


@pytest.mark.parametrize("options, context, pairs", CASES)
def test_two_streams_are_their_equation_in_loops(options, context, pairs):
    model, T = xlnet(**options), 6
    state = model.initial_state(2)
    memories = [[memory.new_zeros(0, 12) for memory in state.memory]] * 2
    for part in range(2 if options else 1):
        tokens, order = draw(2, T, seed=part), orders(2, T, context, seed=part)
        segments = draw(2, T, below=2, seed=part + 9) if pairs else None
        found, state = model.extend(tokens, state, order=order, segments=segments)
        ids = [None] * 2 if segments is None else segments
        rows = zip(tokens, order, memories, ids, strict=True)
        logits, memories = zip(*(streams_in_loops(model, *row) for row in rows), strict=True)
        assert_same(found, torch.stack(logits), model)


@pytest.mark.parametrize("size", [1, 4, 11])
def test_parts_that_remember_all_are_one_order_part_after_part(size):
    model, tokens, order = xlnet(mem_len=11), draw(2, 11), orders(2, 11)
    state, logits = model.initial_state(2), []
    for part in range(0, 11, size):
        here = slice(part, part + size)
        found, state = model.extend(tokens[:, here], state, order=order[:, here])
        logits.append(found)
    whole = model(tokens, order=order + 11 * (torch.arange(11) // size))
    torch.testing.assert_close(torch.cat(logits, 1), whole, rtol=0, atol=1e-11)
    assert state.length.tolist() == [11, 11]
    assert not any(memory.requires_grad for memory in state.memory)
    assert reorder(state, torch.tensor([1])).length.tolist() == [11]
    forgot = replace(state, length=torch.tensor([0, 11]))
    again = model.extend(tokens, forgot, order=order)[0]
    fresh = model(tokens, order=order)
    torch.testing.assert_close(again[0], fresh[0])
    assert (again[1] - fresh[1]).abs().max() > 1e-3


@pytest.mark.parametrize("num_predict", [3, 9])
@pytest.mark.parametrize("ids", [None, 2])
def test_a_query_stream_for_what_is_predicted_is_the_same(num_predict, ids):
    tokens, valid = draw(2, 9), torch.arange(9) < torch.tensor([[9], [7]])
    order = orders(2, 9)
    order = torch.where(order < 3, order, -1).masked_fill(~valid, 99)
    model = xlnet(clamp_len=6)
    given = {"order": order, "valid": valid}
    given |= {} if ids is None else {"segments": draw(2, 9, below=ids)}
    here = (order >= 0) & valid
    whole = model(tokens, **given)[here]
    model.config = replace(model.config, num_predict=num_predict)
    assert_same(model(tokens, **given)[here], whole, model, atol=1e-12)
    cut = tokens[:, :7], order[:, :7]
    each = torch.vmap(lambda z, order: model(z[None], order=order[None])[0])(*cut)
    torch.testing.assert_close(each, model(cut[0], order=cut[1]))
    if num_predict == 3:
        given["order"] = torch.arange(9).expand(2, 9)
        program = torch.compile(model, backend="eager", fullgraph=True)
        with pytest.raises(RuntimeError, match="predicts more tokens than num_predict=3"):
            program(tokens, **given)
        alone = torch.vmap(lambda t, o: model(t[None], order=o[None])[0])(tokens, given["order"])
        model.config = replace(model.config, num_predict=9)
        torch.testing.assert_close(alone, model(tokens, order=given["order"]))


def test_fine_tuning_reads_one_stream_with_everything_seen():
    model, tokens = shaken(XLNetClassifierConfig(**SIZES, num_classes=4)), prompts()
    separator, closing = (vector.expand(3, 1, -1) for vector in model.special)
    h = torch.cat([model.trunk.table(tokens), separator, closing], dim=1)
    segments = torch.tensor([0] * 8 + [2]).expand(3, 9)
    for layer in model.trunk.layers:
        h = layer.after_mixer(h, layer.mixer.relate(h, segments, segments))
    wanted = model.head(model.dense(h[:, -1]).tanh())
    torch.testing.assert_close(model(tokens), wanted, rtol=0, atol=1e-11)

    nothing = model(tokens, valid=torch.zeros_like(tokens, dtype=torch.bool))
    torch.testing.assert_close(nothing[0], nothing[1])
    assert nothing.isfinite().all()
