"""Every catalogue's modules, built on the meta device and reset, are what construction gives; mixers: the law `transfer`."""

from functools import partial

import pytest
import torch

import regard
import regard.models as m
from regard.nn import FEED_FORWARDS, MultiheadAttention
from regard.nn.coord_conv import CoordConv2d
from regard.nn.dice import Dice
from regard.nn.dnn import DNN, Experts
from regard.nn.norm import NORMS
from regard.nn.scores import SCORES, build_score
from regard.pools import build_pool
from regard.positions import POSITIONS
from regard.testing.resetting import require_reset
from tests.models.small import STACK
from tests.models.table import FIELDS
from tests.models.test_every_model import CASES, SIZES, given
from tests.pools.test_pools import OPTIONS, D, Q, S
from tests.positions.test_positions import made

X = torch.randn(2, S, D, generator=torch.Generator().manual_seed(0))
QUERY = torch.randn(2, Q, D, generator=torch.Generator().manual_seed(1))
UNIT = {"hidden_dims": (16, 16)}
UNITS = [("target_query", {"activation": kind, **UNIT}) for kind in ("dice", "prelu", "sigmoid")]


def placed(position):
    at, q = torch.arange(12)[None], torch.ones(1, 2, 12, 5)
    return {
        "absolute": lambda: [position(torch.ones(1, 12, 10), at)],
        "rotation": lambda: [position.rotate(torch.ones(1, 2, 12, 4), at)],
        "bias": lambda: [position.bias(at, at)],
        "scores": lambda: [position.scores(q, q, at, at)],
    }[position.kind]()


@pytest.mark.parametrize("name", POSITIONS.names())
def test_positions(name):
    require_reset(lambda: made(name).float(), placed)


@pytest.mark.parametrize(("name", "options"), [*OPTIONS.items(), *UNITS])
def test_pools(name, options):
    fresh = {"mixer": regard.build("softmax", dim=D, num_heads=2)}
    own = fresh if name == "cross" else options
    given = (X,) if build_pool(name, D, **own).query_dim is None else (X, QUERY)
    require_reset(lambda: build_pool(name, D, **own), lambda pool: [pool(*given)])


@pytest.mark.parametrize("name", SCORES.names())
@pytest.mark.parametrize("num_heads", [None, 3])
def test_scores(name, num_heads):
    heads = () if num_heads is None else (num_heads,)
    q, k = torch.ones(2, *heads, 4, 8), torch.ones(2, *heads, 5, 8)
    make = partial(build_score, name, 8, num_heads=num_heads, max_len=11)
    require_reset(make, lambda score: [score(q, k)])


PARTS = {
    **{f"{kind.name}_norm": (partial(kind, D), X) for kind in NORMS.values()},
    **{kind.name: (partial(kind, D, bias=True), X) for kind in FEED_FORWARDS.values()},
    "dice": (partial(Dice, D), X),
    "dnn": (partial(DNN, D, (16, 16), activation=Dice), X[:, 0]),
    "experts": (partial(Experts, D, 3, (16, 16)), X[:, 0]),
    "coord_conv": (partial(CoordConv2d, 2, 3, 3), torch.ones(2, 2, 5, 5)),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts(name):
    make, x = PARTS[name]
    require_reset(make, lambda module: [module(x)])


@pytest.mark.parametrize("options", [{}, {"kdim": 10, "vdim": 14}, {"bias": False}])
@pytest.mark.parametrize("name", ["softmax", "performer"])
def test_torchs_layer(name, options):
    x = torch.ones(7, 2, 24)

    def mixed(layer):
        keys, values = x[:5, :, : layer.kdim], x[:5, :, : layer.vdim]
        return [layer(x, keys, values, need_weights=False)[0]]

    mixer = partial(regard.build, name, dim=24, num_heads=3, max_len=16)
    require_reset(lambda: MultiheadAttention(mixer(), **options), mixed)


LAYERED = {"num_classes": 5, **STACK}
MODELS = CASES | {
    "classifier-axial": m.ClassifierConfig(position="axial", norm="rms", **LAYERED),
    "classifier-external": m.ClassifierConfig(mixer="global", **LAYERED),
    "language_model-t5": m.LanguageModelConfig(position="learned", norm="scale", embedding_norm=True, **STACK),
    "language_model-reversible": m.LanguageModelConfig(residual="reversible", mixer="routing", **STACK),
    "language_model-chunked": m.LanguageModelConfig(feed_forward_chunk=3, mixer="performer", **STACK),
    "transformer_xl-untie": m.TransformerXLConfig(**SIZES, mem_len=3, untie=True),
    "cross_network-deep": m.CrossNetworkConfig(fields=FIELDS, hidden_dims=(16, 16)),
    "din-dice": m.DINConfig(fields=FIELDS, history=("history", "shops"), activation="dice"),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    args, options = given(name.split("-")[0])
    require_reset(lambda: MODELS[name].build().double(), lambda model: [model(*args, **options)])
