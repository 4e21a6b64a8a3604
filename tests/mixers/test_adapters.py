"""Adapters and hooks: what is put around a layer inside a mixer counts, or is refused."""

from copy import deepcopy

import pytest
import torch
from torch import nn

import regard
from regard import Mask, UnsupportedError
from regard.testing.laws.streaming import feed
from regard.testing.subject import Subject
from tests.laws.catalogue import VARIANTS, factory


class Adapted(nn.Module):
    """y = W x + B A x, with the attributes of the layer inside."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.a = nn.Parameter(torch.randn(2, layer.in_features, dtype=layer.weight.dtype))
        self.b = nn.Parameter(0.1 * torch.randn(layer.out_features, 2, dtype=layer.weight.dtype))

    weight = property(lambda self: self.layer.weight)
    bias = property(lambda self: self.layer.bias)

    def forward(self, x):
        return self.layer(x) + x @ self.a.mT @ self.b.mT


def answers(mixer, T=12):
    """The mixer is called in both orders, with and without global tokens, as far as it takes them."""
    x, marks = torch.randn(2, T, mixer.dim), (torch.arange(T) == 1).expand(2, -1)
    for order in Subject(lambda: mixer).orders():
        order(mixer, x)
        if mixer.capabilities.global_tokens:
            order.but("marked", global_tokens=marks)(mixer, x)


@pytest.mark.parametrize(("name", "variant", "options"), VARIANTS)
def test_what_is_put_around_a_layer_is_called_or_refused(name, variant, options):
    for path, kept in factory(name, options)().named_modules():
        if isinstance(kept, nn.Linear | nn.Conv1d):
            mixer, called = factory(name, options)().eval(), []
            layer = mixer.get_submodule(path)
            hook = layer.register_forward_hook(lambda *_, called=called: called.append(0))
            try:
                answers(mixer)
                assert called, path
            except UnsupportedError as refusal:
                assert not called and f"{name} does not support a hook" in str(refusal)
                hook.remove()
                answers(mixer)


@pytest.mark.parametrize("name, path", [("sinkhorn", "sort_net.out"), ("compressed", "key_conv")])
def test_a_forward_put_in_a_layers_place_is_refused_where_it_is_not_called(name, path):
    mixer = regard.build(name, dim=24, num_heads=3, max_len=32)
    layer = mixer.get_submodule(path)
    layer.forward = layer.forward
    with pytest.raises(UnsupportedError, match=f"{name} does not support a hook or an adapter"):
        mixer(torch.randn(2, 12, 24))
    del layer.forward
    layer.register_full_backward_pre_hook(lambda *_: None)
    with pytest.raises(UnsupportedError, match=f"{name} does not support a hook or an adapter"):
        mixer(torch.randn(2, 12, 24))


@pytest.mark.parametrize("name", [*regard.MIXERS])
def test_an_adapter_is_its_merged_weights(name):
    torch.manual_seed(0)
    mixer = regard.build(name, dim=24, num_heads=3, max_len=32).double().eval()
    around, merged = deepcopy(mixer), deepcopy(mixer)
    for path, layer in mixer.named_modules():
        if isinstance(layer, nn.Linear):
            one = Adapted(around.get_submodule(path))
            around.set_submodule(path, one)
            merged.get_submodule(path).weight.data += (one.b @ one.a).detach()
    x, mask = torch.randn(2, 13, 24).double(), Mask(causal=bool(mixer.capabilities.causal))
    if name == "sinkhorn":
        with pytest.raises(UnsupportedError, match="or an adapter around its Adapted"):
            around(x, mask=mask)
        return
    torch.testing.assert_close(around(x, mask=mask), merged(x, mask=mask))
    if mixer.capabilities.streaming == "exact":
        streamed, _ = feed(around, x, around.initial_state(2), [9, 1, 3])
        torch.testing.assert_close(streamed, merged(x, mask=mask))
