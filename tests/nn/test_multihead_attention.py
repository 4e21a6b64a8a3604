"""Mixers over given queries, keys and values, behind torch's own layer and in torch's own models."""

import copy
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard
from regard import OptionError, ShapeError, UnsupportedError
from regard.nn import MultiheadAttention
from tests.laws.catalogue import FACTS

B, T, S, D, H = 2, 7, 9, 24, 3


def tokens(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, D, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_there_are_reasons_for_what_is_refused():
    for name, reason in (
        ("fnet", "it is not made of queries, keys and values"),
        ("reformer", "its keys are made from its queries, and those given would be ignored"),
        ("sinkhorn", "it needs the tokens themselves as well, for its sorting network"),
    ):
        with pytest.raises(UnsupportedError, match=f"{name} does not support given .*: {reason}"):
            MultiheadAttention(regard.build(name, **FACTS))


def pair(mixer: str = "softmax", **options) -> tuple[nn.MultiheadAttention, MultiheadAttention]:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(D, H, **options).double()
    nn.init.normal_(theirs.in_proj_bias, std=0.1)
    nn.init.normal_(theirs.out_proj.bias, std=0.1)
    return theirs, MultiheadAttention.replacing(
        theirs, regard.build(mixer, dim=D, num_heads=H).double()
    )


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("widths", [{}, {"kdim": 10, "vdim": 14}])
@pytest.mark.parametrize("masked", ["open", "padding", "boolean", "float", "per_head", "causal"])
def test_softmax_is_torchs_own(batch_first, widths, masked):
    theirs, ours = pair(batch_first=batch_first, **widths)
    query = tokens(B, T)
    memory = tokens(B, S, seed=1)
    key, value = memory[..., : theirs.kdim], memory[..., : theirs.vdim]
    if not widths and masked == "causal":
        key = value = query
    masks = {
        "open": {},
        "padding": {"key_padding_mask": torch.arange(S) >= torch.tensor([[S], [5]])},
        "boolean": {"attn_mask": torch.ones(T, S, dtype=torch.bool).triu(3)},
        "float": {"attn_mask": torch.full((T, S), -torch.inf, dtype=torch.float64).triu(3)},
        "per_head": {"attn_mask": torch.ones(B * H, T, S, dtype=torch.bool).triu(4)},
        "causal": {"attn_mask": torch.ones(T, key.shape[1], dtype=torch.bool).triu(1)},
    }[masked]
    if not batch_first:
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
    for average in (True, False):
        want, got = (
            attention(query, key, value, average_attn_weights=average, **masks)
            for attention in (theirs, ours)
        )
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)
    row = tuple(x[0] if batch_first else x[:, 0] for x in (query, key, value))
    if masked in ("open", "boolean"):
        torch.testing.assert_close(ours(*row, **masks), theirs(*row, **masks))
    for attention in (theirs, ours):
        got = attention(query, key, value, need_weights=False, **masks)[0]
        attention.grads = torch.autograd.grad(got.sin().sum(), list(attention.parameters()))
    torch.testing.assert_close(ours.grads, theirs.grads, rtol=1e-10, atol=1e-10)


def test_state_dicts_are_torchs_own():
    theirs, _ = pair()
    ours = MultiheadAttention(regard.build("softmax", dim=D, num_heads=H)).double()
    assert ours.load_state_dict(theirs.state_dict()) and list(ours.state_dict()) == list(
        theirs.state_dict()
    )
    x = tokens(T, B)
    torch.testing.assert_close(ours(x, x, x), theirs(x, x, x))


def layer(batch_first: bool = True, **options) -> nn.TransformerEncoderLayer:
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(D, 4, 32, dropout=0.0, batch_first=batch_first, **options)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("when", ["before", "after"], ids="replaced_{}_the_stack".format)
def test_in_torchs_encoder_no_fast_path_passes_by(norm_first, when):
    """torch computes evaluation without gradients inside one operation, and rows as a nested tensor."""
    one = layer(norm_first=norm_first)
    stack = nn.TransformerEncoder(one, 2, enable_nested_tensor=not norm_first).eval()
    mixers = [regard.build("linear", dim=D, num_heads=4) for _ in range(2)]
    ours = copy.deepcopy(stack)
    for block, mixer in zip(ours.layers, mixers, strict=True):
        block.self_attn = MultiheadAttention.replacing(block.self_attn, mixer)
    if when == "before":
        one = copy.deepcopy(ours.layers[0])
        with (
            pytest.warns(UserWarning, match=r"_qkv_same_embed_dim was not True")
            if not norm_first
            else nullcontext()
        ):
            again = nn.TransformerEncoder(one, 2, enable_nested_tensor=not norm_first).eval()
        again.load_state_dict(ours.state_dict())
        ours = again
    x, hidden = tokens(B, T, dtype=torch.float32), torch.arange(T) >= torch.tensor([[T], [5]])
    with torch.no_grad():
        for mask in ({}, {"src_key_padding_mask": hidden}):
            got = ours(x, **mask)
            with torch.enable_grad():
                want = ours(x, **mask)
            keep = ~hidden[..., None] if mask else 1
            torch.testing.assert_close(got * keep, want * keep)
            assert not torch.allclose(got * keep, stack(x, **mask) * keep, atol=1e-3)


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
    short = ours(x[:, :4], memory, tgt_mask=mask[:4, :4], tgt_is_causal=True)
    torch.testing.assert_close(got[:, :4], short, rtol=1e-4, atol=1e-5)
    hidden = torch.arange(S) >= torch.tensor([[S], [5]])
    padded = ours(x, memory, tgt_mask=mask, memory_key_padding_mask=hidden)
    alone = ours(x[1:], memory[1:, :5], tgt_mask=mask)
    torch.testing.assert_close(padded[1:], alone, rtol=1e-4, atol=1e-5)


class ViT(nn.Module):
    """Somebody's model: torch's layer called with q, k, v of one tensor and the default need_weights."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(1, D, 4, stride=4)
        self.place = nn.Parameter(torch.randn(16, D) * 0.1)
        self.attention = nn.MultiheadAttention(D, 4, batch_first=True)
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, 2)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2) + self.place
        y, _ = self.attention(x, x, x)
        return self.head(self.norm(x + y).mean(1))


def test_in_somebodys_vit():
    torch.manual_seed(0)
    model, image = ViT(), torch.randn(3, 1, 16, 16)
    want = model(image)
    model.attention = MultiheadAttention.replacing(
        model.attention, regard.build("softmax", dim=D, num_heads=4)
    )
    torch.testing.assert_close(model(image), want)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(5, D), nn.Linear(D, 2)
        self.layer = layer()

    def forward(self, ids):
        return self.head(self.layer(self.embed(ids)).amax(1))


@pytest.mark.parametrize("name", ["local", "linear", "performer", "routing"])
def test_a_classifier_trains_after_a_one_line_change(name):
    """The task: is token 4 present?"""
    torch.manual_seed(0)
    model = Classifier()
    model.layer.self_attn = MultiheadAttention.replacing(
        model.layer.self_attn, regard.build(name, dim=D, num_heads=4, max_len=12)
    )
    ids = torch.randint(0, 5, (128, 12))
    ids[:64][ids[:64] == 4] = 0
    label = (ids == 4).any(1).long()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(40):
        loss = F.cross_entropy(model(ids), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.layer.self_attn.mixer.after_step()
    assert loss < 0.1
    assert model.layer.self_attn.in_proj_weight.grad.abs().sum() > 0


def test_what_does_not_fit_is_refused():
    _, ours = pair("linear")
    x = tokens(T, B)
    with pytest.raises(ShapeError, match="attn_mask must be boolean or hold 0 and -inf alone"):
        ours(x, x, x, attn_mask=torch.full((T, T), 0.5))
    with pytest.raises(ShapeError, match=r"attn_mask must have shape \[7, 7\] or \[6, 7, 7\]"):
        ours(x, x, x, attn_mask=torch.ones(T, 2, dtype=torch.bool))
    with pytest.raises(UnsupportedError, match="linear does not support pairwise"):
        ours(x, x, x, attn_mask=torch.ones(T, T, dtype=torch.bool).triu(3))
    with pytest.raises(UnsupportedError, match="local does not support cross"):
        pair("local")[1](x, x.clone(), x)
    with pytest.raises(
        OptionError, match=r"only a torch\.nn\.MultiheadAttention is replaced, got Linear"
    ):
        MultiheadAttention.replacing(
            torch.nn.Linear(2, 2), regard.build("linear", dim=24, num_heads=3)
        )
    with pytest.raises(OptionError, match="mixer must be a mixer, got 'linear'"):
        MultiheadAttention("linear")
    with pytest.raises(UnsupportedError, match="add_bias_kv and add_zero_attn"):
        theirs = nn.MultiheadAttention(D, H, add_bias_kv=True)
        MultiheadAttention.replacing(theirs, regard.build("linear", dim=D, num_heads=H))
    with pytest.raises(ShapeError, match="the mixer has dim 24 and 3 heads, the layer 24 and 4"):
        theirs = nn.MultiheadAttention(D, 4)
        MultiheadAttention.replacing(theirs, regard.build("linear", dim=D, num_heads=H))
    with pytest.raises(OptionError, match=r"num_kv_heads \(1\) must be num_heads \(3\)"):
        MultiheadAttention(regard.build("softmax", dim=D, num_heads=H, num_kv_heads=1))
