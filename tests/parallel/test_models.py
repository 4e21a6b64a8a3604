"""Whole models on parts of a sequence: positions, masks, recomputation; two real processes; bad calls."""

import pickle
from contextlib import suppress
from copy import deepcopy
from functools import partial
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import parallelize_module

import regard
from regard import Mask, OptionError, ShapeError, UnsupportedError
from regard.models.config import Layer
from regard.models.language_model import LanguageModelConfig
from regard.models.masked_language_model import MaskedLanguageModelConfig
from regard.models.transformer import TransformerConfig
from regard.models.transformer_xl import TransformerXLConfig
from regard.models.xlnet import XLNetConfig
from regard.nn.recorded import outermost
from regard.parallel import Ranks, next_tokens, sequence, tensor_plan, way_of
from regard.testing.laws.streaming import feed
from tests.command import in_four_processes
from tests.models.small import shaken
from tests.parallel.simulated import Network, Simulated, on_ranks
from tests.parallel.test_shards import cut

SIZES = {"vocab_size": 11, "dim": 24, "num_heads": 3, "num_layers": 2, "max_len": 32}
TOKENS = torch.randint(11, (2, 14), generator=torch.Generator().manual_seed(0))
VALID = torch.ones(2, 14, dtype=torch.bool)
VALID[1, :6] = VALID[0, 12:] = VALID[:, 5] = False
DOCUMENTS = torch.tensor([[0] * 3 + [1] * 11, [0] * 7 + [1] * 2 + [2] * 5])
LENGTHS = 5, 1, 8
CLOSE = {"rtol": 0, "atol": 1e-10}
ALONE = Simulated(0, Network(1))


def built(config):
    return shaken(config, by=0.1).train()


def weighed(y):
    return (y * torch.linspace(-1, 1, y.shape[-1], dtype=y.dtype)).square().sum()


def trained(model, inputs, masks):
    """Outputs and gradients; those of tokens that are absent, as the last of the masks says, mean nothing."""
    y = model(*inputs, **masks)
    present = next(reversed(masks.values()))
    y = torch.where(present[..., None], y, 0)
    weighed(y).backward()
    grads = {name: z.grad for name, z in model.named_parameters() if z.grad is not None}
    return y.detach(), grads


def of_part(model, ranks, inputs, masks, lengths=LENGTHS):
    """The same of this rank's part."""
    own = partial(cut, dim=1, lengths=lengths, rank=ranks.rank)
    with sequence(model, ranks):
        return trained(model, map(own, inputs), {name: own(z) for name, z in masks.items()})


def assert_whole(parts, config, inputs, masks):
    """Outputs one after the other, and gradients in sum, are those of one process."""
    y, grads = trained(built(config), inputs, masks)
    torch.testing.assert_close(torch.cat([z for z, _ in parts], 1), y, **CLOSE)
    for name, expected in grads.items():
        total = sum(own[name] for _, own in parts if name in own)
        torch.testing.assert_close(total, expected, **CLOSE)


decoder = partial(LanguageModelConfig, **SIZES)
encoder = partial(MaskedLanguageModelConfig, **SIZES, position="learned")
PADDED, PACKED = {"valid": VALID}, {"documents": DOCUMENTS, "valid": VALID}
STACKS = [
    *(decoder(position=position) for position in ("sinusoidal", "learned", "rotary")),
    decoder(position="learned", checkpoint=True),
    decoder(mixer="gau", checkpoint=True),  # its block ends with the mixer
    decoder(mixer="local", mixer_options={"window_size": 3}, residual="reversible"),
    decoder(mixer=(Layer("gated_delta"), Layer("softmax"))),
    encoder(),
    encoder(mixer="longformer", global_tokens=2),
]
PAIR = TransformerConfig(position="learned", **SIZES)
LOOKS = TransformerConfig(cross_mixer="luong_local", checkpoint=True, **SIZES)  # where a query is
CASES = [(config, (TOKENS,), PADDED) for config in STACKS]
CASES += [(decoder(position="learned"), (TOKENS,), PACKED)]
BOTH = {"valid": VALID.flip(1), "target_valid": VALID}
CASES += [(pair, (TOKENS.flip(1), TOKENS), BOTH) for pair in (PAIR, LOOKS)]


@pytest.mark.parametrize(("config", "inputs", "masks"), CASES)
def test_parts_of_a_model_are_the_whole(config, inputs, masks):
    model = built(config)
    found = on_ranks(3, lambda ranks: of_part(deepcopy(model), ranks, inputs, masks))
    assert_whole(found, config, inputs, masks)


@pytest.mark.parametrize("causal", [False, True])
def test_a_layer_for_torch_modules(causal):
    torch.manual_seed(0)
    mixer = regard.build("softmax", dim=24, num_heads=3)
    layer = regard.nn.MultiheadAttention(mixer, batch_first=True).double()
    x = torch.randn(2, 14, 24, dtype=torch.float64)

    def job(ranks):
        copy, part = deepcopy(layer), cut(x, 1, LENGTHS, ranks.rank)
        with sequence(copy, ranks):
            return copy(part, part, part, need_weights=False, is_causal=causal)[0].detach()

    expected = layer(x, x, x, is_causal=causal)[0]
    torch.testing.assert_close(torch.cat(on_ranks(3, job), 1), expected, **CLOSE)


FOUR = SIZES | {"num_heads": 4, "position": "learned"}
EXCHANGES = {
    "state": LanguageModelConfig(mixer="scalar_decay", checkpoint=True, **FOUR),
    "state, of strides": LanguageModelConfig(mixer="differential", **FOUR),
    "halo": LanguageModelConfig(mixer="local", mixer_options={"window_size": 3}, **FOUR),
    "heads": LanguageModelConfig(mixer="softmax", checkpoint=True, **FOUR),
    "context": MaskedLanguageModelConfig(mixer="differential", **FOUR),
    "context, sums": MaskedLanguageModelConfig(mixer="linear", **FOUR),
    "context, means": MaskedLanguageModelConfig(mixer="efficient", **FOUR),
    "context, slots": MaskedLanguageModelConfig(mixer="linformer", **FOUR),
    "tokens": MaskedLanguageModelConfig(mixer="nystrom", **FOUR),
}
PARTS = {2: (6, 8), 4: (5, 1, 3, 5)}


def tensor_parallel(model, mesh, *inputs, **masks):
    """Raise AssertionError unless a divided copy gives the model's outputs and gradients."""
    divided = parallelize_module(deepcopy(model), mesh, tensor_plan(model))
    found, expected = divided(*inputs, **masks), model(*inputs, **masks)
    torch.testing.assert_close(found, expected, **CLOSE)
    for y in (found, expected):
        weighed(y).backward()
    for (name, z), whole in zip(divided.named_parameters(), model.parameters(), strict=True):
        grad = z.grad.full_tensor() if hasattr(z.grad, "full_tensor") else z.grad
        torch.testing.assert_close(grad, whole.grad, **CLOSE, msg=name)
    if isinstance(divided, regard.Mixer) and divided.capabilities.pairwise:
        of_each = torch.ones(1, divided.num_heads, *[inputs[0].shape[1]] * 2, dtype=torch.bool)
        with pytest.raises(UnsupportedError, match="pairs of each head"):
            divided(inputs[0], mask=Mask(pairwise=of_each))
    return divided, expected


def _process(rank, folder):
    pair, found, divided = dist.new_group([0, 1]), {}, []
    for size, group in ((4, dist.group.WORLD), (2, pair)):
        for name, config in EXCHANGES.items() if rank < size else ():
            part = of_part(built(config), Ranks(group), (TOKENS,), PADDED, PARTS[size])
            found[f"{name}, {size}"] = part
    own = partial(cut, dim=1, lengths=PARTS[4], rank=rank)
    shifted = nn.functional.pad(TOKENS[:, 1:], (0, 1), value=-100)
    assert torch.equal(next_tokens(own(TOKENS)), own(shifted))
    with pytest.raises(OptionError, match="that this process is part of, got"):
        sequence(nn.Sequential(), dist.GroupMember.NON_GROUP_MEMBER)
    if rank < 2:
        mesh = DeviceMesh.from_group(pair, "cpu")
        x = torch.linspace(-1, 1, 2 * 11 * 24, dtype=torch.float64).sin().view(2, 11, 24)
        for name, entry in regard.MIXERS.items():
            mixer = regard.build(name, dim=24, num_heads=4, max_len=16).double().eval()
            with suppress(UnsupportedError):
                tensor_plan(mixer)
                mask = Mask(causal=bool(entry.capabilities.causal))
                part, y = tensor_parallel(mixer, mesh, x, mask=mask)
                if entry.capabilities.streaming == "exact":
                    streamed, _ = feed(part, x, part.initial_state(2), (4, 7))
                    torch.testing.assert_close(streamed, y, **CLOSE)
                divided.append(name)
        config = LanguageModelConfig(mixer="softmax", feed_forward="swiglu", **FOUR)
        tensor_parallel(built(config), mesh, TOKENS, valid=VALID)
    torch.save((found, divided), f"{folder}/{rank}.pt")


def test_two_and_four_processes_train_as_one(tmp_path):
    """Their gradients add up to those of one process."""
    in_four_processes(_process, str(tmp_path))
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in range(4)]
    for size in PARTS:
        for name, config in EXCHANGES.items():
            mixer, way = next(outermost(built(config)))[1], name.partition(",")[0]
            mask = Mask(causal=isinstance(config, LanguageModelConfig))
            assert way_of(mixer, mask, size=size) == way
            parts = [part[f"{name}, {size}"] for part, _ in found[:size]]
            assert_whole(parts, config, (TOKENS,), PADDED)
    divided = found[0][1]
    assert {"softmax", "linear", "local", "global"} <= set(divided)
    assert not {"longformer", "gau", "forgetting"} & set(divided)


@pytest.mark.parametrize("fields", [{}, PADDED, PACKED], ids=list)
def test_targets_are_those_of_the_whole_row(fields):
    def job(ranks):
        own = partial(cut, dim=1, lengths=LENGTHS, rank=ranks.rank)
        return next_tokens(own(TOKENS), ranks, **{name: own(z) for name, z in fields.items()})

    expected, documents = torch.full_like(TOKENS, -100), fields.get("documents", 0 * DOCUMENTS)
    for row, valid in enumerate(fields.get("valid", torch.ones_like(VALID))):
        for i, j in pairwise(valid.nonzero()[:, 0].tolist()):
            if documents[row, i] == documents[row, j]:
                expected[row, i] = TOKENS[row, j]
    assert torch.equal(torch.cat(on_ranks(3, job), 1), expected)


def test_what_cannot_be_cut_or_divided_is_refused_in_one_sentence():
    build = partial(regard.build, dim=24, num_heads=3)
    mixer, routing = build("softmax"), build("routing", max_len=64)
    xl = {name: value for name, value in SIZES.items() if name != "max_len"}
    with pytest.raises(OptionError, match="needs a process group: call"):
        sequence(mixer)
    with pytest.raises(OptionError, match="cannot cut Linear: it has no mixer"):
        sequence(nn.Linear(2, 2), ALONE)
    with sequence(nn.Sequential(mixer), ALONE):
        with pytest.raises(OptionError, match="cannot cut Softmax: its mixers have a forward of"):
            sequence(mixer, ALONE)
        with pytest.raises(ShapeError, match=r"softmax: x must have shape \[B, T, 24\]"):
            mixer(torch.zeros(1, 2, 3))
        for copied in (deepcopy, pickle.dumps):  # which would compute with this one's weights
            with pytest.raises(UnsupportedError, match="does not support copies of a model that"):
                copied(mixer)
    assert "forward" not in vars(deepcopy(mixer))
    streams = TransformerXLConfig(segment_len=4, **xl), LanguageModelConfig(**SIZES)
    for model in (config.build() for config in streams):
        state = model.initial_state(2)
        goes_on = pytest.raises(UnsupportedError, match="goes on from a state")
        with sequence(model, ALONE), goes_on:
            model.extend(TOKENS, state)
        assert model.extend(TOKENS, state)[0].shape == (2, 14, 11)
    xlnet = XLNetConfig(**xl).build()
    with pytest.raises(UnsupportedError, match="its second stream is not exchanged"):
        sequence(xlnet, ALONE)
    no_plan = "{} does not support tensor parallel: its heads {}".format
    whole = {no_plan("longformer", "are not independent"): build("longformer")}
    whole[no_plan("softmax", "share heads.query_norm.weight")] = build("softmax", qk_norm=True)
    for why, undivided in whole.items():
        with pytest.raises(UnsupportedError, match=why):
            tensor_plan(nn.Sequential(undivided))
    mixer.heads.query.weight.placements, mixer.heads.query.unshard = (), None  # as FSDP has them
    of_each = Mask(pairwise=torch.ones(1, 3, 2, 2).bool())  # gathered in time, all heads are here
    assert mixer(torch.zeros(1, 2, 24), mask=of_each).shape == (1, 2, 24)
    learns = pytest.raises(UnsupportedError, match="training on parts of a sequence: its centroid")
    with sequence(routing, ALONE), learns:
        routing(torch.zeros(1, 2, 24))


PAIRS = torch.ones(1, 1, 2, 4, dtype=torch.bool)
PARTED = [torch.ones(shape).bool() for shape in ((2, 4), (1, 1, 2, 2), (1, 1, 1, 4))]
NO_PAIR = [("softmax", "pairwise", (wrong, PAIRS), r"\(2, 4\), \(2, 4\)") for wrong in PARTED]
GIVEN = ("nystrom", "global_tokens", (torch.ones(1, 2).bool(), None), "must give the same fields")


@pytest.mark.parametrize(("name", "field", "values", "why"), [GIVEN, *NO_PAIR])
def test_masks_that_do_not_fit_together_are_refused_on_each_rank(name, field, values, why):
    mixer = regard.build(name, dim=24, num_heads=3)

    def job(ranks):
        copy, mask = deepcopy(mixer), Mask(**{field: values[ranks.rank]})
        with sequence(copy, ranks), pytest.raises(ShapeError, match=why):
            copy(torch.zeros(1, 2, 24), mask=mask)

    assert on_ranks(2, job) == [None, None]
