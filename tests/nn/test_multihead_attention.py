"""Mixers over given queries, keys and values, behind torch's own layer and in torch's own models."""

import copy
from contextlib import nullcontext
from functools import partial
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.prune import l1_unstructured

import regard
from regard import OptionError, ShapeError, UnsupportedError
from regard.nn import MultiheadAttention
from tests.laws.catalogue import FACTS

B, T, S, D, H = 2, 7, 9, FACTS["dim"], FACTS["num_heads"]
build = partial(regard.build, **FACTS)


def tokens(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, D, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def pair(
    mixer: str = "softmax", own: dict | None = None, **options
) -> tuple[nn.MultiheadAttention, MultiheadAttention]:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(D, H, **options).double()
    nn.init.normal_(theirs.in_proj_bias, std=0.1)
    nn.init.normal_(theirs.out_proj.bias, std=0.1)
    return theirs, MultiheadAttention.replacing(theirs, build(mixer, **own or {}).double())


def numbers(*shape: int, scale: float = 1.0) -> torch.Tensor:
    """Learned numbers that are added to scores; key 3 is hidden from most queries."""
    mask = scale * torch.randn(shape, generator=torch.Generator().manual_seed(2)).double()
    mask[..., 2:, 3] = -torch.inf
    return mask.requires_grad_()


LATER = torch.ones(T, T, dtype=torch.bool).triu(1)
PADDING = torch.tensor([[0, 1, 0, 0, 1, 0, 0, 0, 0], [0] * 5 + [1] * 4]).bool()
NEGATIVE = torch.zeros(B, S).double().masked_fill(PADDING, -torch.inf)
PAIRS = torch.ones(T, S, dtype=torch.bool)
MASKS = {
    "open": {},
    "padding": {"key_padding_mask": PADDING},
    "boolean": {"attn_mask": PAIRS.triu(3)},
    "float": {"attn_mask": torch.full((T, S), -torch.inf, dtype=torch.float64).triu(3)},
    "per_head": {"attn_mask": PAIRS.expand(B * H, T, S).triu(4)},
    "causal": {"attn_mask": PAIRS.triu(1)},
    "padded_causal": {"attn_mask": PAIRS.triu(1), "key_padding_mask": PADDING},
    "numbers": {"attn_mask": numbers(T, S)},
    "zeros": {"attn_mask": numbers(T, S, scale=0.0)},
    "padded_numbers": {"attn_mask": numbers(B * H, T, S), "key_padding_mask": NEGATIVE},
}
"""For S keys; fewer keys have the first columns."""
HIDDEN = [*product(("softmax", "linear"), ("open", "hint", "mask", "both")), ("softmax", "window")]


@pytest.mark.parametrize("impl", ["auto", "plain"])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("keys", ["own", "as_many", "more", "narrow"])
@pytest.mark.parametrize("masked", MASKS)
def test_softmax_is_torchs_own(masked, keys, batch_first, impl):
    """Outputs, weights, and gradients of the parameters and of the mask; queries that are padding say nothing."""
    widths = {"kdim": 10, "vdim": 14} if keys == "narrow" else {}
    theirs, ours = pair(own={"impl": impl}, batch_first=batch_first, **widths)
    n, rows = S if keys in ("more", "narrow") else T, 0 if batch_first else 1
    query = key = value = tokens(B, T).transpose(0, rows)
    if keys != "own":
        memory = tokens(B, n, seed=1).transpose(0, rows)
        key, value = memory[..., : theirs.kdim], memory[..., : theirs.vdim]
    masks = {name: mask[..., :n] for name, mask in MASKS[masked].items()}
    padded = keys == "own" and "key_padding_mask" in masks
    shown = ~PADDING[:, :T] if padded else torch.ones(B, T, dtype=torch.bool)
    leaves = [z for z in (*MASKS[masked].values(), *theirs.parameters()) if z.requires_grad]
    found = []
    for layer in (theirs, ours):
        call = partial(layer, query, key, value, **masks)
        y, averaged = call()
        weights = call(average_attn_weights=False)[1].transpose(1, 2)
        alone = call(need_weights=False)[0].transpose(0, rows)[shown]
        grads = torch.autograd.grad(alone.sin().sum(), leaves)
        found.append((y.transpose(0, rows)[shown], averaged[shown], weights[shown], grads))
    torch.testing.assert_close(found[1], found[0], rtol=1e-10, atol=1e-10)
    if masked == "padded_causal" and n == T:
        told = ours(query, key, value, masks["key_padding_mask"], is_causal=True)
        for same in (told, call(is_causal=True)):
            torch.testing.assert_close(same, call())
    if masked in ("open", "padding", "boolean"):
        row = [x.select(rows, 0) for x in (query, key, value)]
        masks |= {"key_padding_mask": PADDING[0, :n]} if masked == "padding" else {}
        torch.testing.assert_close(ours(*row, **masks), theirs(*row, **masks))


def test_numbers_of_a_mask_are_added_to_those_of_a_position():
    theirs, ours = pair(own={"position": "alibi"}, batch_first=True)
    x, mask, places = tokens(B, T), numbers(B * H, T, T), torch.arange(T)[None]
    bias = ours.mixer.position.bias(places, places, torch.float64)
    both = mask + bias.expand(B, -1, -1, -1).flatten(0, 1)
    torch.testing.assert_close(ours(x, x, x, attn_mask=mask), theirs(x, x, x, attn_mask=both))


@pytest.mark.parametrize("name", ["softmax", "linear", "performer"])
def test_in_torchs_decoder_layer(name):
    torch.manual_seed(0)
    theirs = nn.TransformerDecoderLayer(D, 4, 32, dropout=0.0, batch_first=True)
    ours = copy.deepcopy(theirs)
    for part in ("self_attn", "multihead_attn"):
        mixer = regard.build(name, dim=D, num_heads=4)
        setattr(ours, part, MultiheadAttention.replacing(getattr(ours, part), mixer))
    x, memory = tokens(B, T, dtype=torch.float32), tokens(B, S, seed=1, dtype=torch.float32)
    mask = nn.Transformer.generate_square_subsequent_mask(T)
    got = ours(x, memory, tgt_mask=mask, tgt_is_causal=True)
    if name == "softmax":
        torch.testing.assert_close(got, theirs(x, memory, tgt_mask=mask, tgt_is_causal=True))
    hidden = torch.arange(S) >= torch.tensor([[S], [5]])
    padded = ours(x, memory, tgt_mask=mask, memory_key_padding_mask=hidden)
    alone = ours(x[1:], memory[1:, :5], tgt_mask=mask)
    torch.testing.assert_close(padded[1:], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("when, nested", [("after", True), ("after", False), ("before", True)])
@pytest.mark.parametrize("padding", [True, False], ids=["padding", "full"])
@pytest.mark.parametrize(("name", "masked"), HIDDEN)
def test_torchs_encoder_hides_the_same_in_every_mode(name, masked, padding, when, nested, train):
    """Each row alone, under a mask written out, is what the stack must say: in evaluation torch hands rows over as a nested tensor."""
    torch.manual_seed(0)
    one = nn.TransformerEncoderLayer(D, 4, 32, dropout=0.0, batch_first=True)

    def replaced(block: nn.TransformerEncoderLayer) -> None:
        mixer = regard.build(name, dim=D, num_heads=4)
        block.self_attn = MultiheadAttention.replacing(block.self_attn, mixer)

    if when == "before":
        replaced(one)
    with pytest.warns(match="_qkv_same_embed_dim") if when == "before" else nullcontext():
        stack = nn.TransformerEncoder(one, 2, enable_nested_tensor=nested)
    for block in stack.layers if when == "after" else ():
        replaced(block)
    hidden = {"open": None, "window": LATER.triu(3)}.get(masked, LATER)
    request = {} if masked in ("open", "hint") else {"mask": hidden}
    request |= {"is_causal": True} if masked in ("hint", "both") else {}
    x, lengths = tokens(B, T, dtype=torch.float32), [5, T] if padding else [T, T]
    if padding:
        request["src_key_padding_mask"] = torch.arange(T) >= torch.tensor(lengths)[:, None]
    with torch.no_grad():
        got = stack.train(train)(x, **request)
        stack.train()
        for row, n in enumerate(lengths):
            mask = {} if hidden is None else {"mask": hidden[:n, :n]}
            alone = stack(x[row : row + 1, :n], **mask)
            torch.testing.assert_close(got[row : row + 1, :n], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_nested_rows_are_each_row_alone(causal):
    _, ours = pair(batch_first=True)
    rows = [tokens(n, seed=n) for n in (5, 3)]
    nested = torch.nested.as_nested_tensor(rows)
    y, weights = ours(nested, nested, nested, is_causal=causal)
    for b, row in enumerate(rows):
        n, want = len(row), ours(row, row, row, is_causal=causal)
        torch.testing.assert_close((y.unbind()[b], weights[b, :n, :n]), want)
        assert not weights[b, n:].any() and not weights[b, :, n:].any()


def test_torchs_own_call_plus_a_mixer_starts_as_torchs_layer_from_the_same_seed():
    mixer, rolled = build("softmax"), []
    for make in (lambda: nn.MultiheadAttention(D, H), lambda: MultiheadAttention(mixer)):
        torch.manual_seed(0)
        rolled.append((make().state_dict(), torch.rand(1)))
    torch.testing.assert_close(*rolled, rtol=0, atol=0)
    arguments = (D, H, 0.25, False, False, False, 10, 14, True)
    theirs = nn.MultiheadAttention(*arguments).double()
    ours = MultiheadAttention(*arguments, mixer=mixer, dtype=torch.float64)
    assert ours.load_state_dict(theirs.state_dict()) and ours.mixer.dropout == ours.dropout == 0.25
    assert mixer.dropout == 0 and ours.mixer.options["dropout"] == 0.25
    query, memory = tokens(B, T), tokens(B, S, seed=1)
    given = query, memory[..., :10], memory[..., :14]
    torch.testing.assert_close(ours.eval()(*given), theirs.eval()(*given), rtol=1e-10, atol=1e-10)
    named = MultiheadAttention(embed_dim=D, num_heads=H, mixer=mixer, bias=False)
    assert named.state_dict().keys() == MultiheadAttention(mixer, bias=False).state_dict().keys()


@pytest.mark.parametrize("name", ["softmax", "linear", "scored"])
def test_very_negative_numbers_hide_as_true_does_and_valid_is_one_at_a_token(name):
    _, ours = pair(name, batch_first=True)
    x, padding = tokens(B, T), torch.arange(T) >= torch.tensor([[T], [5]])
    ways = [{"valid": (~padding).to(dtype)} for dtype in (torch.bool, torch.long, torch.double)]
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        for never in (-torch.inf, -1e9, torch.finfo(dtype).min):
            hidden, later = (m.double().masked_fill(m, never).to(dtype) for m in (padding, LATER))
            ways.append({"key_padding_mask": hidden, "attn_mask": later})
    want = ours(x, x, x, padding, attn_mask=LATER)
    for way in ways:
        got = ours(x, x, x, **{"attn_mask": LATER} | way)
        torch.testing.assert_close(got, want, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["softmax", "transformer_xl"])
def test_dropout_of_weights_is_taken_over(name):
    theirs = nn.MultiheadAttention(D, H, dropout=0.5)
    mixer = build(name)
    ours = MultiheadAttention.replacing(theirs, mixer)
    assert ours.dropout == ours.mixer.dropout == ours.mixer.options["dropout"] == 0.5
    assert mixer.dropout == mixer.options["dropout"] == 0
    x = tokens(T, B, dtype=torch.float32)
    assert MultiheadAttention.replacing(nn.MultiheadAttention(D, H), mixer).dropout == 0
    assert not torch.allclose(ours(x, x, x)[0], ours(x, x, x)[0])
    assert torch.equal(ours.eval()(x, x, x)[0], ours(x, x, x)[0])
    own = build(name, dropout=0.5)
    assert MultiheadAttention.replacing(theirs, own).mixer.dropout == 0.5
    assert MultiheadAttention.replacing(nn.MultiheadAttention(D, H), own).dropout == 0.5
    theirs.dropout = 0.0
    assert MultiheadAttention.replacing(theirs, build("linear")).dropout == 0


@pytest.mark.parametrize("options", [
    {}, {"bias": False}, {"batch_first": True}, {"kdim": 10}, {"vdim": 14}, {"kdim": D, "vdim": D},
    {"kdim": 10, "vdim": 14, "bias": False}, {"dtype": torch.bfloat16}, {"device": "meta"},
])  # fmt: skip
@pytest.mark.parametrize("training", [True, False])
def test_everything_of_the_layer_is_kept(options, training):
    theirs = nn.MultiheadAttention(D, H, **options).train(training)
    for n, parameter in enumerate(theirs.parameters()):
        parameter.requires_grad_(n % 2 == 0)
    for _ in range(2):
        ours = MultiheadAttention.replacing(theirs, build("rfa"))
        own = dict(ours.named_parameters())
        for name, parameter in theirs.named_parameters():
            if not name.startswith("mixer."):
                assert own.pop(name) is parameter, name
        assert own and all(name.startswith("mixer.") for name in own)
        first = next(theirs.parameters())
        assert all((p.device, p.dtype) == (first.device, first.dtype) for p in own.values())
        for fact in ("batch_first", "kdim", "vdim", "training", "num_heads", "embed_dim"):
            assert getattr(ours, fact) == getattr(theirs, fact), fact
        assert ours.mixer.training == training
        theirs = ours  # what was replaced is replaced again


def hooked(layer: nn.MultiheadAttention) -> nn.MultiheadAttention:
    layer.register_forward_hook(lambda module, args, output: None)
    return layer


def of_torch(change=lambda layer: layer, name="softmax", own=(), num_heads=H, **options):
    """A layer of torch, of these options and changed, is replaced."""
    theirs = change(nn.MultiheadAttention(D, num_heads, **options))
    return MultiheadAttention.replacing(theirs, build(name, **dict(own)))


def call(name: str = "softmax", **masks):
    x = tokens(T, B)
    return pair(name)[1](x, x, x, **masks)


def made(*arguments, name: str = "softmax", options=(), **facts):
    return MultiheadAttention(*arguments, mixer=build(name, **dict(options)), **facts)


parametrised = partial(weight_norm, name="in_proj_weight")
pruned = partial(l1_unstructured, name="in_proj_weight", amount=0.5)
EXTRA = "add_bias_kv", "add_zero_attn"
ONES, VALID = torch.ones(T, T), torch.ones(B, T).bool()
NEST = torch.nested.as_nested_tensor([tokens(n) for n in (5, 3)])
REFUSED = {
    UnsupportedError: [
        ("fnet does not .*: it is not made of queries, keys and values", lambda: made(name="fnet")),
        ("reformer does .*: its keys are made from its queries", lambda: made(name="reformer")),
        ("sinkhorn .*: it needs the tokens themselves as well, for its sorting network",
         lambda: made(name="sinkhorn")),
        ("linear does not support pairwise", lambda: call("linear", attn_mask=ONES.triu(3).bool())),
        ("local does not support cross", lambda: pair("local")[1](*map(tokens, (T, 1, 1), (B,) * 3))),
        *(("add_bias_kv and add_zero_attn", partial(made, **{name: True})) for name in EXTRA),
        *(("add_bias_kv and add_zero_attn", partial(of_torch, **{name: True})) for name in EXTRA),
        (r"linear does not support dropout of weights \(0.1", lambda: made(D, H, 0.1, name="linear")),
        (r"linear does not support dropout of weights \(0.5\)", lambda: of_torch(
            name="linear", dropout=0.5)),
        (r"the layer has hooks \(_forward_pre_hooks\)", lambda: of_torch(pruned)),
        (r"the layer has hooks \(_forward_hooks\)", lambda: of_torch(hooked)),
        (r"the layer has hooks \(forward\)", lambda: of_torch(
            lambda theirs: vars(theirs).update(forward=1) or theirs)),
        ("does not support attn_mask under vmap or export", lambda: torch.export.export(
            pair(batch_first=True)[1], (tokens(B, T),) * 3, {"attn_mask": ONES.tril() < 1}, strict=False)),
        ("nested tensors as a context", lambda: pair(batch_first=True)[1](
            NEST, *[tokens(5, 1)] * 2)),
        ("nor beside masks", lambda: pair(batch_first=True)[1](
            NEST, NEST, NEST, attn_mask=torch.zeros(5, 5).bool())),
    ],
    OptionError: [
        (r"heads must have dim / num_heads channels", lambda: made(options={"head_dim": 2 * D // H})),
        ("itself is replaced, got ParametrizedMultiheadAttention", lambda: of_torch(parametrised)),
        (r"mixer \(512\) must be a Mixer", lambda: MultiheadAttention(512, 8)),
        (r"num_kv_heads \(1\) must be num_heads \(3\)", lambda: made(
            options={"num_kv_heads": 1})),
        (r"the mixer's dropout \(0.25\) is not the layer's \(0.5\)", lambda: of_torch(
            own={"dropout": 0.25}, dropout=0.5)),
        ("one of valid and key_padding", lambda: call(valid=VALID, key_padding_mask=~VALID)),
    ],
    ShapeError: [
        ("has dim 24 and 3 heads, the layer 16 and 3", lambda: made(embed_dim=16)),
        ("has dim 24 and 3 heads, the layer 24 and 4", lambda: of_torch(num_heads=4)),
        ("attn_mask must be boolean or hold 0 and -inf", lambda: call("linear", attn_mask=ONES / 2)),
        ("valid must be boolean or hold 0 and 1 alone", lambda: call(valid=VALID.long() * 2)),
        (r"mask.valid must have shape \[2, 7\], got \[2, 3\]", lambda: call(valid=VALID[:, :3])),
        (r"mask.valid must have shape \[2, 7\], got \[2, 3\]", lambda: call(
            valid=VALID[:, :3], attn_mask=torch.rand(T, T))),
        ("got torch.int64. .* goes in as valid=", lambda: call(key_padding_mask=VALID.long())),
        ("hold 0 and -inf alone", lambda: call(key_padding_mask=VALID.double() / 2)),
        ("if they are finite", lambda: call(attn_mask=ONES * torch.nan)),
        ("is_causal says", lambda: call(attn_mask=torch.rand(T, T).tril(), is_causal=True)),
        ("is_causal says that attn_mask is the causal mask", lambda: call(
            attn_mask=ONES.triu(3).bool(), is_causal=True)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("error, why, make", [(e, *row) for e in REFUSED for row in REFUSED[e]])
def test_what_does_not_fit_or_would_be_lost_is_refused(error, why, make):
    with pytest.raises(error, match=why):
        make()


def test_a_parametrised_output_projection_is_kept():
    theirs = nn.MultiheadAttention(D, H)
    weight_norm(theirs.out_proj)
    ours = MultiheadAttention.replacing(theirs, build("softmax"))
    x = tokens(T, B, dtype=torch.float32)
    torch.testing.assert_close(ours(x, x, x), theirs(x, x, x))


def test_a_padded_call_of_the_meta_device_has_a_shape():
    with torch.device("meta"):
        layer = MultiheadAttention(regard.build("softmax", dim=8, num_heads=2), batch_first=True)
        x, hidden = torch.zeros(2, 5, 8), torch.zeros(2, 5, dtype=torch.bool)
        assert layer(x, x, x, key_padding_mask=hidden)[0].shape == (2, 5, 8)
