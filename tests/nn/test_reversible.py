from functools import partial

import pytest
import torch
from torch import nn

from regard import Mask, OptionError, UnsupportedError, build
from regard.nn import FEED_FORWARDS, Chunked, ReversibleBlock, ReversibleSequence
from regard.testing.counting import count
from regard.testing.subject import results
from tests.kept import kept_bytes

DIM = 12
X = torch.randn(2, 11, DIM)


class Mixing(nn.Module):
    def __init__(self, name: str):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.mixer = build(name, dim=DIM, num_heads=2, max_len=32)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x, mask):
        return self.dropout(self.mixer(self.norm(x), mask=mask))


def stack(depth: int, *, recompute: bool, name: str = "reformer", device: str = "cpu"):
    torch.manual_seed(0)
    feed = partial(FEED_FORWARDS["gelu"], DIM, dropout=0.1)
    with torch.device(device):
        pairs = [(Mixing(name), nn.Sequential(nn.LayerNorm(DIM), feed())) for _ in range(depth)]
        return ReversibleSequence([ReversibleBlock(*f_g) for f_g in pairs], recompute=recompute)


def trained(name: str, recompute: bool, dtype: torch.dtype = torch.float64, autocast: bool = False):
    """Output, next random number, and gradients."""
    model = stack(3, recompute=recompute, name=name).to(dtype)
    torch.manual_seed(1)
    x = torch.randn(2, 11, DIM, dtype=dtype, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        y = model(x, Mask(causal=True))
    gradients = torch.autograd.grad(y.square().sum(), [x, *model.parameters()])
    return y, torch.rand(1), gradients


@pytest.mark.parametrize("name", ["reformer", "routing", "sinkhorn"])
def test_reversible_training_is_plain_training(name):
    (*plain, plain_grads), (*ours, our_grads) = (trained(name, way) for way in (False, True))
    torch.testing.assert_close(ours, plain, rtol=0, atol=0)
    torch.testing.assert_close(our_grads, plain_grads, rtol=1e-9, atol=1e-10)


def test_stored_activations_do_not_grow_with_depth():
    def stored(depth: int, recompute: bool) -> int:
        model = stack(depth, recompute=recompute, name="local", device="meta").requires_grad_(False)
        x = torch.empty(1, 512, DIM, device="meta", requires_grad=True)
        return kept_bytes(lambda: model(x, Mask(causal=True)))

    assert stored(8, True) == stored(2, True)
    assert stored(8, False) > 3 * stored(2, False)


def test_autocast_is_the_same_in_recomputation():
    plain, ours = (trained("softmax", way, torch.float32, True)[2][0] for way in (False, True))
    assert (plain - ours).norm() < 1e-5 * plain.norm()


@pytest.mark.parametrize("way", ["reversible", "in chunks"])
def test_a_mode_that_changes_before_the_backward_changes_no_gradient(way):
    def found(again):
        model, given = stack(2, recompute=again, name="softmax"), (Mask(),)
        if way == "in chunks":
            torch.manual_seed(0)
            layer = nn.Sequential(nn.Linear(DIM, DIM), nn.Dropout(0.3))
            model, given = Chunked(layer, 3), ()
        torch.manual_seed(3)
        loss = model.train()(X, *given).square().mean()
        if again:
            model.eval()
        loss.backward()
        assert all(part.training is not again for part in model.modules())
        return [z.grad for z in model.parameters()]

    torch.testing.assert_close(found(True), found(False))


@pytest.mark.parametrize("own", ["hook", "forward"])
def test_what_is_put_around_a_block_counts_in_training_too(own):
    model = stack(2, recompute=True, name="softmax").eval()
    block = model.blocks[0]
    if own == "hook":
        block.register_forward_hook(lambda block, given, y: (2 * y[0], y[1]))
    else:
        block.forward = lambda *given: ReversibleBlock.forward(block, *given)[::-1]
    with torch.no_grad():
        alone = model(X, Mask())
    torch.testing.assert_close(model(X, Mask()), alone)


def test_arguments_that_want_gradients_are_refused():
    model = stack(1, recompute=True)
    with pytest.raises(OptionError, match="recompute=False"):
        model(torch.randn(1, 4, DIM), torch.randn(3, requires_grad=True))
    with pytest.raises(OptionError, match="merge"):
        ReversibleSequence([], merge="sum")


@pytest.mark.parametrize("chunk_size", [1, 4, 5, 11, 64])
def test_chunked_feed_forward_is_the_whole_one(chunk_size):
    torch.manual_seed(0)
    layer = FEED_FORWARDS["swiglu"](DIM).double()
    x = torch.randn(2, 11, DIM, dtype=torch.float64, requires_grad=True)
    ways = layer, Chunked(layer, chunk_size)
    found = (results(layer, way(x), x=x) for way in ways)
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)


def test_chunks_need_less_memory_in_training_too():
    layer = FEED_FORWARDS["gelu"](DIM, 64 * DIM).to("meta")
    x = torch.empty(1, 1024, DIM, device="meta")

    def train(module):
        return lambda: module(x).sum().backward()

    whole, parts = (count(train(m)).peak_bytes for m in (layer, Chunked(layer, 64)))
    assert parts < whole / 3


def test_a_second_derivative_is_refused_and_recompute_false_has_it():
    x = torch.randn(1, 5, DIM, dtype=torch.float64, requires_grad=True)

    def first(recompute):
        loss = stack(2, recompute=recompute, name="linear").double()(x, Mask()).square().sum()
        return torch.autograd.grad(loss, x, create_graph=True)[0]

    first(False).square().sum().backward()
    assert x.grad.abs().sum() > 0
    with pytest.raises(UnsupportedError, match="Build it with recompute=False"):
        first(True)
