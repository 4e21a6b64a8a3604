"""XLNet: two streams, orders, memories, segments; pre-training and fine-tuning."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import regard
from regard import Mask
from regard.models import MODELS
from regard.models.xlnet import XLNet, XLNetConfig, xlnet_base, xlnet_large, xlnet_small
from regard.models.xlnet_classifier import (
    XLNetClassifier,
    XLNetClassifierConfig,
    XLNetMatcher,
    XLNetMatcherConfig,
)
from tests.models.loops import inside, post_norm, relative_attention
from tests.models.small import VOCAB, prompts, ragged

SIZES = {"vocab_size": VOCAB, "dim": 12, "num_heads": 2, "num_layers": 2, "hidden_dim": 20}


def moved(config) -> torch.nn.Module:
    torch.manual_seed(0)
    model = config.build().double().eval()
    for parameter in model.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    return model


def make(**options) -> XLNet:
    return moved(XLNetConfig(**{**SIZES, **options}))


def draw(*shape: int, below: int = VOCAB, seed: int = 3) -> Tensor:
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(seed))


def orders(B: int, T: int, context: float = 0.0, seed: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    rank = torch.rand(B, T, generator=generator).argsort(1)
    return rank.masked_fill(torch.rand(B, T, generator=generator) < context, -1)


def in_loops(model, tokens, order, memories, segments=None, reuse=None):
    """Logits of one row [T] and its memories: explicit masks, two attentions over explicit pairs and distances."""
    config, params = model.config, dict(model.named_parameters())
    T, reuse = len(tokens), len(tokens) if reuse is None else reuse
    table = params["trunk.table.weight"]
    rank = order.tolist()

    def before(i: int, j: int) -> bool:
        if (i < reuse) != (j < reuse):
            return j < reuse
        return rank[j] == -1 or (rank[i] != -1 and rank[j] < rank[i])

    h = table[tokens]
    g = params["query"].expand(T, -1)
    after = []
    for n, memory in enumerate(memories):
        m = len(memory)
        block = inside(params, f"trunk.layers.{n}.")
        seen = torch.cat([memory, h])

        def two(i, j, m=m):
            return segments[i] != (0 if j < m else segments[j - m])

        def stream(x, sees, seen=seen, m=m, block=block, two=two):
            mixed = relative_attention(
                inside(block, "mixer."),
                x,
                seen,
                num_heads=config.num_heads,
                place_of_query=range(m, m + T),
                place_of_key=range(m + T),
                sees=lambda i, j: j < m or sees(i, j - m),
                clamp_len=config.clamp_len,
                two_segments=None if segments is None else two,
            )
            return post_norm(block, x, mixed, F.gelu)

        after.append(torch.cat([memory, h[:reuse]])[-config.mem_len :].detach())
        g, h = stream(g, before), stream(h, lambda i, j: before(i, j) or i == j)
    return g @ table.T + params["bias"], after


@pytest.mark.parametrize(
    "options, context, pairs, reuse",
    [
        ({}, 0.0, False, None),
        ({"mem_len": 5, "clamp_len": 4}, 0.4, False, 3),
        ({"mem_len": 9}, 0.5, True, 4),
    ],
)
def test_is_its_equation_in_loops(options, context, pairs, reuse):
    model, T = make(**options), 6
    state = model.initial_state(2)
    memories = [[memory.new_zeros(0, 12) for memory in state.memory]] * 2
    for part in range(2 if options else 1):
        tokens, order = draw(2, T, seed=part), orders(2, T, context, seed=part)
        segments = draw(2, T, below=2, seed=part + 9) if pairs else None
        found, state = model.extend(tokens, state, order=order, segments=segments, reuse_len=reuse)
        rows = [
            in_loops(
                model,
                tokens[b],
                order[b],
                memories[b],
                None if segments is None else segments[b].tolist(),
                reuse,
            )
            for b in range(2)
        ]
        wanted = torch.stack([logits for logits, _ in rows])
        memories = [after for _, after in rows]
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)
    names, leaves = zip(*model.named_parameters(), strict=True)
    ours, theirs = (
        torch.autograd.grad(y.square().mean(), leaves, allow_unused=True) for y in (found, wanted)
    )
    for name, a, b in zip(names, ours, theirs, strict=True):
        assert (a is None) == (b is None) == (not pairs and ".segment." in name), name
        if a is not None:
            torch.testing.assert_close(a, b, rtol=0, atol=1e-10, msg=name)


@pytest.mark.parametrize("context", [0.0, 0.4])
def test_no_token_is_seen_by_what_comes_before_it_or_by_its_own_question(context):
    model, tokens, order = make(), draw(1, 9), orders(1, 9, context)
    logits, rank = model(tokens, order=order), order[0]
    for t in range(9):
        changed = tokens.clone()
        changed[0, t] = (changed[0, t] + 1) % VOCAB
        felt = (model(changed, order=order) != logits).any(-1)[0]
        sees = (rank > rank[t]) if rank[t] >= 0 else torch.ones(9, dtype=torch.bool)
        assert torch.equal(felt, sees)


def test_in_the_order_of_the_text_it_is_a_left_to_right_model():
    model, tokens = make(), draw(2, 9)
    h, g = model.trunk.table(tokens), model.query.expand(2, 9, -1)
    strictly = Mask(pairwise=torch.ones(9, 9, dtype=torch.bool).tril(-1)[None, None])
    for layer in model.trunk.layers:
        g = layer.after_mixer(g, layer.mixer(g, context=h, mask=strictly))
        h = layer.after_mixer(h, layer.mixer(h, mask=Mask(causal=True)))
    wanted = g @ model.trunk.table.weight.T + model.bias
    found = model(tokens, order=torch.arange(9).expand(2, 9))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-11)


def test_content_is_a_causal_model_of_the_tokens_put_in_order_at_their_own_places():
    model, tokens, order = make(), draw(2, 9), orders(2, 9)
    place = order.argsort(1)  # of the tokens in their order
    future = torch.ones(9, 9, dtype=torch.bool).triu(1)
    h = model.trunk.table(tokens.gather(1, place))
    for layer in model.trunk.layers:
        mixer = layer.mixer
        q, k, v = mixer.heads.split(h)
        scores = mixer.position.scores(q, k, place, place) / 6**0.5
        weights = scores.masked_fill(future, -torch.inf).softmax(-1)
        h = layer.after_mixer(h, mixer.heads.merge(weights @ v))
    contents = []
    model.trunk.layers[-1].register_forward_hook(lambda _, __, out: contents.append(out[0]))
    model(tokens, order=order)
    content = contents[0].gather(1, place[..., None].expand(-1, -1, 12))
    torch.testing.assert_close(content, h, rtol=0, atol=1e-11)


@pytest.mark.parametrize("segment_len", [1, 4, 11])
def test_parts_that_remember_all_are_one_order_part_after_part(segment_len):
    tokens, order = draw(2, 11), orders(2, 11)
    inside_parts = make(segment_len=segment_len, mem_len=11)(tokens, order=order)
    whole = make()(tokens, order=order + 11 * (torch.arange(11) // segment_len))
    torch.testing.assert_close(inside_parts, whole, rtol=0, atol=1e-11)


def test_only_the_reused_tokens_are_remembered_and_they_saw_no_others():
    model, tokens, order = make(mem_len=3), draw(2, 8), orders(2, 8)
    _, state = model.extend(tokens, model.initial_state(2), order=order, reuse_len=5)
    _, alone = model.extend(tokens[:, :5], model.initial_state(2), order=order[:, :5])
    assert state.length.tolist() == [5, 5]
    for ours, theirs in zip(state.memory, alone.memory, strict=True):
        assert ours.shape == (2, 3, 12) and not ours.requires_grad
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    fresh = model.extend(tokens, model.initial_state(2), order=order)[0]
    forgot = model.extend(tokens, replace(state, length=torch.tensor([0, 5])), order=order)[0]
    torch.testing.assert_close(forgot[0], fresh[0])
    assert (forgot[1] - fresh[1]).abs().max() > 1e-3


@pytest.mark.parametrize("options", [{}, {"segment_len": 2, "mem_len": 3}], ids=str)
def test_padding_changes_nothing(options):
    model, tokens, valid, order = make(**options), prompts(), ragged(), orders(3, 7, 0.3)
    segments = draw(3, 7, below=2)
    padded = model(
        tokens.masked_fill(~valid, -1),
        order=order.masked_fill(~valid, 0),
        valid=valid,
        segments=segments,
    )
    for row in range(3):
        here = valid[row]
        alone = model(
            tokens[row : row + 1, here],
            order=order[row : row + 1, here],
            segments=segments[row : row + 1, here],
        )
        torch.testing.assert_close(padded[row, here], alone[0], rtol=0, atol=1e-11)


@pytest.mark.parametrize("num_predict", [3, 9])
@pytest.mark.parametrize("ids", [None, 2])
def test_a_query_stream_for_what_is_predicted_is_the_same(num_predict, ids):
    tokens, valid = draw(2, 9), torch.arange(9) < torch.tensor([[9], [7]])
    order = orders(2, 9)
    order = torch.where(order < 3, order, -1)
    few = make(mem_len=4, segment_len=5, clamp_len=6, num_predict=num_predict)
    whole = make(mem_len=4, segment_len=5, clamp_len=6)
    given = {
        "order": order,
        "valid": valid,
        "segments": None if ids is None else draw(2, 9, below=ids),
    }
    found, wanted = few(tokens, **given), whole(tokens, **given)
    here = (order >= 0) & valid
    torch.testing.assert_close(found[here], wanted[here], rtol=0, atol=1e-11)
    ours, theirs = (
        torch.autograd.grad(y[here].square().sum(), list(m.parameters()), allow_unused=True)
        for y, m in ((found, few), (wanted, whole))
    )
    for a, b in zip(ours, theirs, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=0, atol=1e-11)
    with pytest.raises(regard.ShapeError, match="predicts 3 tokens, and num_predict is 2"):
        make(num_predict=2)(tokens, order=order)


def test_segments_are_told_apart_and_one_is_none():
    model, tokens, order = make(), draw(2, 9), orders(2, 9, 0.3)
    plain = model(tokens, order=order)
    one = model(tokens, order=order, segments=torch.ones_like(tokens))
    torch.testing.assert_close(one, plain, rtol=0, atol=1e-12)
    two = model(tokens, order=order, segments=(torch.arange(9) > 4).long().expand(2, 9))
    assert (two - plain).abs().max() > 1e-3


def classifier(**options) -> XLNetClassifier:
    return moved(XLNetClassifierConfig(num_classes=4, **{**SIZES, **options}))


def matcher(**options) -> XLNetMatcher:
    return moved(XLNetMatcherConfig(num_classes=4, **{**SIZES, **options}))


def test_fine_tuning_reads_one_stream_with_everything_seen():
    model, tokens = classifier(), prompts()
    separator, closing = (vector.expand(3, 1, -1) for vector in model.special)
    h = torch.cat([model.trunk.table(tokens), separator, closing], dim=1)
    segments = torch.tensor([0] * 8 + [2]).expand(3, 9)
    for layer in model.trunk.layers:
        h = layer.after_mixer(h, layer.mixer.relate(h, segments, segments))
    wanted = model.head(model.dense(h[:, -1]).tanh())
    torch.testing.assert_close(model(tokens), wanted, rtol=0, atol=1e-11)


def test_padding_changes_no_class():
    first, second, valid = prompts(), draw(3, 5), ragged()
    other = torch.arange(5) >= torch.tensor([[0], [3], [1]])
    one, two = classifier(), matcher()
    padded = one(first.masked_fill(~valid, -1), valid=valid)
    matched = two(first.masked_fill(~valid, -1), second, first_valid=valid, second_valid=other)
    for row in range(3):
        a, b = first[row : row + 1, valid[row]], second[row : row + 1, other[row]]
        torch.testing.assert_close(padded[row], one(a)[0], rtol=0, atol=1e-11)
        torch.testing.assert_close(matched[row], two(a, b)[0], rtol=0, atol=1e-11)
    nothing = one(first, valid=torch.zeros_like(valid))
    torch.testing.assert_close(nothing[0], nothing[1])
    assert nothing.isfinite().all()


def test_a_trained_trunk_is_loaded():
    model, head = make(), classifier()
    before = head(prompts())
    head.load_trunk(model)
    assert all(
        torch.equal(a, b)
        for a, b in zip(head.trunk.parameters(), model.trunk.parameters(), strict=True)
    )
    assert not torch.allclose(head(prompts()), before)
    with pytest.raises(regard.OptionError, match="num_layers is 3, and 2 in the trunk to load"):
        classifier(num_layers=3).load_trunk(model)


def call(model, tokens=None):
    tokens = prompts() if tokens is None else tokens
    if isinstance(model, XLNet):
        return model(tokens, order=orders(3, 7, 0.3))
    return model(tokens, draw(3, 5)) if isinstance(model, XLNetMatcher) else model(tokens)


@pytest.mark.parametrize("build", [make, classifier, matcher])
def test_saved_and_loaded_is_the_same(build, tmp_path):
    model = build()
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    other = model.config.build().double().eval()
    assert not torch.equal(call(other), call(model))
    other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert torch.equal(call(other), call(model))


def test_compiles_whole():
    model = make(num_layers=1, segment_len=4, mem_len=3, num_predict=4)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    given = {"order": orders(3, 7, 0.3), "valid": ragged(), "segments": draw(3, 7, below=2)}
    torch.testing.assert_close(compiled(prompts(), **given), model(prompts(), **given))
    head = classifier(num_layers=1)
    compiled = torch.compile(head, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(prompts(), valid=ragged()), head(prompts(), valid=ragged()))


@pytest.mark.parametrize("way", ["option", "outside"])
def test_recomputed_gradients_are_the_same(way):
    grads = []
    for again in (False, True):
        model = make(dropout=0.3, attention_dropout=0.2).train()
        model.trunk.checkpoint = again and way == "option"
        torch.manual_seed(1)
        if again and way == "outside":
            logits = checkpoint(call, model, prompts(), use_reentrant=False)
        else:
            logits = call(model)
        logits.square().mean().backward()
        grads.append([p.grad for p in model.parameters() if p.grad is not None])
    assert len(grads[0]) > 20 and all(map(torch.equal, *grads))


@pytest.mark.parametrize(
    "preset, trunk",
    [(xlnet_base, 116_718_336), (xlnet_large, 360_268_800)],
)
def test_has_as_many_parameters_as_published(preset, trunk):
    """The released models without their output biases, one for each of 32,000 tokens."""
    with torch.device("meta"):
        model = preset().build()
    assert sum(p.numel() for p in model.parameters()) == trunk + 32_000


def test_are_in_the_catalogue():
    assert MODELS["xlnet"] is XLNet and xlnet_small(50).build()(
        prompts(), order=orders(3, 7)
    ).shape == (3, 7, 50)
    assert MODELS["xlnet_classifier"] is XLNetClassifier
    assert MODELS["xlnet_matcher"] is XLNetMatcher


@pytest.mark.parametrize(
    "change, said",
    [
        ({"mem_len": -1}, r"mem_len \(-1\)"),
        ({"segment_len": 0}, r"segment_len \(0\)"),
        ({"clamp_len": 0}, r"clamp_len \(0\)"),
        ({"dim": 13}, r"dim \(13\) must be divisible"),
        ({"dropout": 1}, "dropout"),
        ({"attention_dropout": -0.1}, "attention_dropout"),
    ],
)
def test_bad_configurations_are_named(change, said):
    with pytest.raises(regard.OptionError, match=said):
        make(**change)


def test_bad_requests_are_named():
    model, text = make(mem_len=3), prompts()
    order = orders(3, 7)
    for asked, said in [
        (lambda: model(text + VOCAB, order=order), "outside the vocabulary"),
        (lambda: model(text, order=order[:, 1:]), r"order must be int64 or int32 \[3, 7\]"),
        (lambda: model(text, order=order.double()), r"got a tensor .* of torch\.float64"),
        (lambda: model(text, order=order, segments=order[:2]), "segments must be"),
        (lambda: model.extend(text, model.initial_state(2), order=order), "for a batch of 3"),
        (lambda: matcher()(text, text[:2]), "first has batch 3, second 2"),
        (lambda: classifier()(text - VOCAB), "token id -"),
    ]:
        with pytest.raises(regard.ShapeError, match=said):
            asked()
    with pytest.raises(regard.OptionError, match="reuse_len"):
        model.extend(text, model.initial_state(3), order=order, reuse_len=0)


def test_learns_to_predict_in_any_order_and_no_more_than_the_order_shows():
    """Every token stands twice. What is asked after its twin is known exactly; what is asked before it is even chance."""
    torch.manual_seed(0)
    symbols, half = 8, 4
    model = XLNetConfig(
        vocab_size=symbols, dim=32, num_heads=4, hidden_dim=64, num_predict=half
    ).build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)

    def step(rows: int) -> tuple[Tensor, Tensor, Tensor]:
        text = torch.randint(0, symbols, (rows, half)).repeat(1, 2)
        order = torch.rand(rows, 2 * half).argsort(1)
        order = torch.where(order < half, -1, order)
        twin = order.roll(half, dims=1)
        return model(text, order=order), text.masked_fill(order < 0, -100), twin < order

    for _ in range(150):
        logits, labels, _ = step(32)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        logits, labels, known = step(500)
    asked = labels >= 0
    right = logits.argmax(-1) == labels
    assert right[asked & known].float().mean() > 0.97
    assert (right[asked & ~known].float().mean() - 1 / symbols).abs() < 0.06
