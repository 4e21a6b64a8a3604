"""Whole models on parts of a sequence: positions, masks, recomputation; two real processes; bad calls."""

from contextlib import nullcontext
from copy import deepcopy

import pytest
import torch
import torch.distributed as dist
from torch import nn

import regard
from regard import Mask, OptionError, ShapeError, UnsupportedError
from regard.models.config import Layer
from regard.models.language_model import LanguageModelConfig
from regard.models.masked_language_model import MaskedLanguageModelConfig
from regard.models.transformer import TransformerConfig
from regard.parallel import sequence, way_of
from tests.parallel.simulated import on_ranks
from tests.parallel.test_shards import cut

SIZES = {"vocab_size": 11, "dim": 24, "num_heads": 3, "num_layers": 2, "max_len": 32}
TOKENS = torch.randint(11, (2, 14), generator=torch.Generator().manual_seed(0))
VALID = torch.ones(2, 14, dtype=torch.bool)
VALID[1, :6] = VALID[0, 12:] = VALID[:, 5] = False
LENGTHS = 5, 1, 8
CLOSE = {"rtol": 0, "atol": 1e-10}


def built(config):
    torch.manual_seed(0)
    model = config.build().double()
    with torch.no_grad():
        for z in model.parameters():
            z.add_(0.1 * torch.randn_like(z))
    return model


def trained(model, inputs, valid):
    """Outputs and gradients; those of tokens that are absent, as the last of `valid` says, mean nothing."""
    y = model(*inputs, **valid)
    present = next(reversed(valid.values()))
    y = torch.where(present[..., None], y, 0)
    (y * torch.linspace(-1, 1, y.shape[-1], dtype=y.dtype)).square().sum().backward()
    return y.detach(), {name: z.grad for name, z in model.named_parameters()}


def require_parts(config, inputs=(TOKENS,), valid=None):
    valid = {"valid": VALID} if valid is None else valid
    model = built(config)

    def job(ranks):
        def own(z):
            return cut(z, 1, LENGTHS, ranks.rank)

        copy = deepcopy(model)
        with sequence(copy, ranks):
            return trained(copy, [own(z) for z in inputs], {n: own(z) for n, z in valid.items()})

    found = on_ranks(3, job)
    y, grads = trained(model, inputs, valid)
    torch.testing.assert_close(torch.cat([z for z, _ in found], 1), y, **CLOSE)
    for name, expected in grads.items():
        torch.testing.assert_close(sum(own[name] for _, own in found), expected, **CLOSE)


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary"])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_language_model(position, checkpoint):
    require_parts(
        LanguageModelConfig(mixer="softmax", position=position, checkpoint=checkpoint, **SIZES)
    )


@pytest.mark.parametrize(
    "options",
    [
        {"mixer": "gau", "checkpoint": True},  # its block ends with the mixer
        {"mixer": "local", "mixer_options": {"window_size": 3}, "residual": "reversible"},
        {"mixer": (Layer("gated_delta"), Layer("softmax"))},
    ],
)
def test_other_causal_stacks(options):
    require_parts(LanguageModelConfig(**SIZES, **options))


def test_documents_go_over_a_border_of_parts():
    documents = torch.tensor([[0] * 3 + [1] * 11, [0] * 7 + [1] * 2 + [2] * 5])
    require_parts(
        LanguageModelConfig(position="learned", **SIZES),
        valid={"documents": documents, "valid": VALID},
    )


@pytest.mark.parametrize(
    "options", [{"mixer": "softmax"}, {"mixer": "longformer", "global_tokens": 2}]
)
def test_a_bidirectional_stack(options):
    require_parts(MaskedLanguageModelConfig(position="learned", **SIZES, **options))


def test_encoder_and_decoder():
    config = TransformerConfig(position="learned", **SIZES)
    require_parts(config, (TOKENS.flip(1), TOKENS), {"valid": VALID.flip(1), "target_valid": VALID})


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


# ------------------------------------------------------------------ processes

WAYS = {
    "gated_delta": ("state", True),
    "softmax": ("context", False),
    "linear": ("context", False),
    "nystrom": ("tokens", False),
}


def mixed(name, x, wrap, part=lambda z: z):
    """Output, its gradient by x and by all parameters; `part` is this rank's of a tensor."""
    torch.manual_seed(0)
    mixer = regard.build(name, dim=24, num_heads=3).double()
    x = part(x).clone().requires_grad_()
    valid = part(torch.arange(9)[None] != 4).expand(2, -1)
    with wrap(mixer):
        y = mixer(x, mask=Mask(causal=WAYS[name][1], valid=valid))
        (y * part(torch.linspace(-1, 1, 9)[None, :, None].double())).square().sum().backward()
    grads = torch.cat([z.grad.flatten() for z in mixer.parameters()])
    return y.detach(), x.grad, grads


def language_model(wrap, part=lambda z: z):
    model = built(
        LanguageModelConfig(mixer="scalar_decay", position="learned", checkpoint=True, **SIZES)
    )
    with wrap(model):
        y, grads = trained(model, [part(TOKENS)], {"valid": part(VALID)})
    return y, torch.cat([z.flatten() for z in grads.values()])


def _process(rank, folder, world):
    torch.set_num_threads(1)
    init = {"init_method": f"file://{folder}/meeting", "rank": rank, "world_size": world}
    dist.init_process_group("gloo", **init)
    x = torch.load(f"{folder}/x.pt", weights_only=True)
    found = {n: mixed(n, x, sequence, lambda z: cut(z, 1, (6, 3), rank)) for n in WAYS}
    found["model"] = language_model(
        lambda model: sequence(model, dist.group.WORLD), lambda z: cut(z, 1, (6, 8), rank)
    )
    torch.save(found, f"{folder}/{rank}.pt")
    with pytest.raises(OptionError, match="that this process is part of, got"):
        sequence(nn.Sequential(), dist.GroupMember.NON_GROUP_MEMBER)
    dist.barrier()
    dist.destroy_process_group()


def test_two_processes_give_what_one_gives(tmp_path):
    x = torch.randn(2, 9, 24, dtype=torch.float64)
    torch.save(x, tmp_path / "x.pt")
    torch.multiprocessing.spawn(_process, (str(tmp_path), 2), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    whole = {name: mixed(name, x, nullcontext) for name in WAYS}
    whole["model"] = language_model(nullcontext)
    for name, (*parts, grads) in whole.items():
        for i, expected in enumerate(parts):
            found = torch.cat([first[name][i], second[name][i]], 1)
            torch.testing.assert_close(found, expected, **CLOSE)
        torch.testing.assert_close(first[name][-1] + second[name][-1], grads, **CLOSE)
    for name, (way, causal) in WAYS.items():
        assert way_of(regard.build(name, dim=24, num_heads=3), Mask(causal=causal)) == way


# ------------------------------------------------------------------ the door


class Alone:
    """A rank without others."""

    rank, size = 0, 1
    receive = None


def test_what_cannot_be_cut_is_refused_in_one_sentence():
    mixer = regard.build("softmax", dim=24, num_heads=3)
    with pytest.raises(OptionError, match="needs a process group: call"):
        sequence(mixer)
    with pytest.raises(OptionError, match="cannot cut Linear: it has no mixer"):
        sequence(nn.Linear(2, 2), Alone())
    with sequence(nn.Sequential(mixer), Alone()):
        with pytest.raises(OptionError, match="cannot cut Softmax: its mixers have a forward of"):
            sequence(mixer, Alone())
        with pytest.raises(ShapeError, match=r"softmax: x must have shape \[B, T, 24\]"):
            mixer(torch.zeros(1, 2, 3))
    assert "forward" not in vars(mixer)
    routing = regard.build("routing", dim=24, num_heads=3, max_len=64)
    with (
        sequence(routing, Alone()),
        pytest.raises(UnsupportedError, match="training on parts of a sequence: its centroids"),
    ):
        routing(torch.zeros(1, 2, 24))


def test_ranks_that_give_unlike_masks_are_refused_on_each():
    mixer = regard.build("nystrom", dim=24, num_heads=3)

    def job(ranks):
        copy, marks = deepcopy(mixer), torch.ones(1, 2, dtype=torch.bool)
        with sequence(copy, ranks), pytest.raises(ShapeError, match="must give the same fields"):
            copy(torch.zeros(1, 2, 24), mask=Mask(global_tokens=None if ranks.rank else marks))

    assert on_ranks(2, job) == [None, None]
