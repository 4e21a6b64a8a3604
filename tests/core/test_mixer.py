"""What one sees of catalogues, mixers and pools: names, printing, types, and how a call with wrong arguments is refused."""

import pickle
from collections import ChainMap
from collections.abc import Mapping

import pytest
import torch
from mypy import api
from torch import nn

import regard
from regard import MIXERS, Mask, OptionError, ShapeError, UnknownNameError
from regard.core import Mixer
from regard.nn import NORMS
from regard.pools import build_pool
from tests.packaging import ROOT
from tests.refused import assert_refused

X = torch.randn(2, 5, 24)
CATALOGUES = (MIXERS, NORMS, regard.POOLS, regard.SCORES, regard.POSITIONS, regard.MODELS)
BY_NAME = "by position: only x comes without a name. Pass "
ONE_VALUE = "one value says who may take part. Pass "


class Own(Mixer):
    name = "own"
    capabilities = MIXERS["softmax"].capabilities

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
    assert repr(pickle.loads(pickle.dumps(mixer))) == repr(mixer)
    own = Own(24, act=torch.relu, layer=nn.Sequential(nn.ReLU()), words="a" * 999)
    text = own.extra_repr()  # what is long is cut
    assert text.startswith("dim=24, act=relu, layer=Sequential(...), words='aaa")
    assert "..." in text and len(text) < 150 and "sizes" not in text
    assert Own(24, act=nn.ReLU, sizes=(1, 3)).extra_repr() == "dim=24, act=ReLU, sizes=(1, 3)"
    rated = Own(24, rate=torch.ones(2)).extra_repr()
    assert rated == "dim=24, rate=a tensor [2] of torch.float32"
    assert repr(build_pool("mean", 6)) == "Mean(dim=6)"


TYPED = """
import regard
from regard import Mask
from regard.pools import build_pool
from torch import Tensor

x = Tensor()
mixer: regard.Mixer = regard.build("local", dim=8, num_heads=2)
reveal_type(mixer(x))
reveal_type(mixer(x, context=x, mask=Mask(causal=True)))
reveal_type(build_pool("mean", 8)(x))
mixer(x, maks=None)
mixer(x, Mask())
"""


def test_a_type_checker_sees_a_tensor_and_refuses_wrong_arguments(tmp_path):
    """With the settings and the cache of `make check`: without a cache it reads all of torch, which takes half a minute."""
    path = tmp_path / "typed.py"
    path.write_text(TYPED)
    settings = ["--config-file", str(ROOT / "pyproject.toml")]
    told, trouble, _ = api.run([*settings, "--cache-dir", str(ROOT / ".mypy_cache"), str(path)])
    assert not trouble
    assert told.count('note: Revealed type is "torch._tensor.Tensor"') == 3, told
    assert 'typed.py:12: error: Unexpected keyword argument "maks"' in told
    assert "typed.py:13: error: Too many positional arguments" in told


@pytest.mark.parametrize(("args", "kwargs", "words"), [
    ((X, Mask(causal=True)), {}, f"does not take Mask(causal=True) {BY_NAME}mask=."),
    ((X, X, X), {}, f"take a tensor [2, 5, 24] of torch.float32 {BY_NAME}context=."),
    ((X,), {"causal": True}, f"take causal: {ONE_VALUE}mask=Mask(causal=...)."),
    ((X,), {"is_causal": True}, f"take is_causal: {ONE_VALUE}mask=Mask(causal=True)."),
    ((X,), {"attn_mask": None}, "Pass mask=Mask(pairwise=...) [B|1 H|"),
    ((X,), {"maks": Mask()}, "'maks'. Did you mean 'mask'?"),
])  # fmt: skip
def test_a_call_with_wrong_arguments_is_refused_with_what_to_write_instead(args, kwargs, words):
    with pytest.raises(UnknownNameError if "maks" in kwargs else OptionError) as refused:
        regard.build("linear", dim=24, num_heads=3)(*args, **kwargs)
    assert "linear" in str(refused.value) and words in str(refused.value)
    assert refused.value.__context__ is None


def test_a_type_error_from_within_is_passed_on_as_it_is():
    mixer = regard.build("linear", dim=24, num_heads=3)
    mixer.register_forward_hook(lambda *_: 1 + "one")
    with pytest.raises(TypeError, match="unsupported operand"):
        mixer(X)


@pytest.mark.parametrize(
    "odd", [lambda x: x[:, :1], lambda x: x[0], lambda x: (x,), lambda x: None]
)
def test_what_a_mixer_of_ones_own_gives_must_have_the_shape_of_its_tokens(odd, monkeypatch):
    """Broadcasting would make numbers of it."""
    monkeypatch.setattr(Own, "mix", lambda self, x, context, mask: odd(x))
    valid = torch.tensor([[1, 1, 1, 0, 1], [1, 1, 1, 1, 1]]).bool()
    for mask in (Mask(), Mask(valid=valid)):
        with pytest.raises(ShapeError, match=r"own: mix must give \[2, 5, 24\], got"):
            Own(24)(X, mask=mask)


def test_what_a_class_declares_is_checked():
    can, require, near = Own.capabilities, Own(24).require, "'streamin'. Did you mean 'streaming'"
    nameless = type("Nameless", (Mixer,), {"mix": Own.mix, "capabilities": can})
    assert_refused(
        (OptionError, "causal", lambda: can.but(causal=False)),
        (OptionError, "padding", lambda: can.but(padding=None)),
        (OptionError, "streaming", lambda: can.but(streaming="exat")),
        (OptionError, "time", lambda: can.but(time=2)),
        (UnknownNameError, f"unknown capability {near}", lambda: require("streamin")),
        (UnknownNameError, "unknown capability 3", lambda: require(3)),
        (OptionError, r"No: reason \(3\) must be a name", lambda: regard.core.No(3)),
        (OptionError, "Nameless has no name", lambda: nameless(24)),
    )


@pytest.mark.parametrize("entries", CATALOGUES, ids=lambda entries: entries.kind)
def test_a_catalogue_is_a_mapping_of_names_to_entries(entries):
    assert isinstance(entries, Mapping)
    assert list(entries) == entries.names() == list(entries.keys()) == [*dict(entries)]
    assert len(entries) == len(entries.values()) == len(entries.items())
    for name, entry in entries.items():
        assert entry.name == name and name in entries and entries[name] is entry
        assert entries.get(name) is entry
    assert entries._ipython_key_completions_() == entries.names()


def test_an_unknown_name_is_a_value_error_and_a_key_error_with_the_near_name():
    assert "liner" not in MIXERS and ["linear"] not in MIXERS
    assert MIXERS.get("liner") is None and MIXERS.get("liner", 3) == 3
    with pytest.raises(UnknownNameError) as unknown:
        MIXERS["liner"]
    assert str(unknown.value) == "unknown mixer 'liner'. Did you mean 'linear'?"
    assert isinstance(unknown.value, ValueError) and isinstance(unknown.value, KeyError)
    assert ChainMap(MIXERS, {"mine": 1})["mine"] == 1  # which asks the next map after a KeyError
