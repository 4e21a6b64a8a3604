"""What one sees of a mixer or a pool: the options that are not at their default, in print."""

import copy
import pickle

import pytest
import torch
from torch import nn

import regard
from regard.core import Capabilities, Mixer, No
from regard.pools import build_pool


def make(name, **options):
    return regard.build(name, dim=24, num_heads=3, max_len=32, **options)


class Own(Mixer):
    """With options of every kind."""

    name = "own"
    capabilities = Capabilities(
        causal=True,
        pairwise=True,
        global_tokens=No("none"),
        cross=True,
        streaming=No("none"),
        attention_map=No("none"),
        time="T",
        memory="T",
    )

    def __init__(self, dim, *, act=torch.tanh, layer=None, words="", sizes=(1, 2), rate=0.5):
        super().__init__(dim)
        self.layer = nn.Linear(dim, dim)

    def mix(self, x, context, mask):
        return self.layer(x)


def test_a_mixer_prints_the_options_that_are_not_at_their_default_and_then_its_children():
    mixer = regard.build("local", dim=64, num_heads=4, window_size=16)
    assert mixer.extra_repr() == "dim=64, num_heads=4, window_size=16"
    first, second, *_, last = repr(mixer).splitlines()
    assert (first, second, last) == ("Local(", "  dim=64, num_heads=4, window_size=16", ")")
    assert "\n  (heads): Heads(\n" in repr(mixer)
    for same in (copy.deepcopy(mixer), pickle.loads(pickle.dumps(mixer))):
        assert repr(same) == repr(mixer)


def test_functions_modules_and_long_values_print_short():
    own = Own(24, act=torch.relu, layer=nn.Sequential(nn.ReLU()), words="a" * 999)
    text = own.extra_repr()
    assert text.startswith("dim=24, act=relu, layer=Sequential(...), words='aaa")
    assert "..." in text and len(text) < 150 and "sizes" not in text
    assert Own(24, act=nn.ReLU, sizes=(1, 3)).extra_repr() == "dim=24, act=ReLU, sizes=(1, 3)"
    assert Own(24, rate=torch.ones(2)).extra_repr() == "dim=24, rate=a tensor [2] of torch.float32"


@pytest.mark.parametrize("name", regard.MIXERS.names())
def test_every_mixer_prints_its_sizes_in_a_short_line(name):
    text = make(name).extra_repr()
    assert text.startswith("dim=24") and "\n" not in text and len(text) < 150


def test_pools_print_their_options_too():
    gate = build_pool("gate", 6, query_dim=3, num_experts=4, num_queries=2)
    assert gate.extra_repr() == "dim=6, query_dim=3, num_queries=2, num_experts=4"
    assert repr(build_pool("mean", 6)) == "Mean(dim=6)"
