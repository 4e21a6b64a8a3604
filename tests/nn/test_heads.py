"""A part of the heads, as tensor parallel leaves it: as good as all where heads are alike, refused where they are not."""

import copy

import pytest
import torch
from torch import nn

from regard import MIXERS, OptionError, ShapeError, build
from regard.nn.heads import Heads, Values
from regard.testing.laws.streaming import feed
from regard.testing.subject import Subject

REFUSED = r"Heads cannot make \d heads of 6 of a projection of width \d+: a process of tensor parallel .* width \d+"
OPTIONS = {"longformer": {"window_size": 2, "max_global": 8}, "linformer": {"sharing": "headwise"}}
OPTIONS |= {"strided": {"stride": 2}, "local": {"window_size": 2}, "global": {"num_global": 2}}
EXACT = {"rtol": 1e-10, "atol": 1e-10}
ALL = ("query", "key", "value", "out")


def halved(mixer: nn.Module, names: tuple[str, ...] = ALL, part: int = 0) -> nn.Module:
    """With one of two processes' part of these layers: of their rows, and of the columns of the last."""
    mixer = copy.deepcopy(mixer)
    for path, layer in mixer.named_modules():
        name = path.rpartition(".")[2]
        if isinstance(layer, nn.Linear) and name in names:
            kept = layer.weight.detach().chunk(2, int(name == "out"))[part]
            layer.weight = nn.Parameter(kept.clone())
            layer.out_features, layer.in_features = kept.shape
    return mixer


def with_heads(name: str, **options) -> nn.Module:
    torch.manual_seed(0)
    options = OPTIONS.get(name, {}) | options
    return build(name, dim=24, num_heads=4, max_len=16, **options).double().eval()


def is_divided(mixer: nn.Module) -> bool:
    modules = list(mixer.modules())
    ours = any(isinstance(module, Heads | Values) for module in modules)
    return ours and any(name in ALL for module in modules for name in module._modules)


DIVIDED = {n: mixer for n in MIXERS.names() if is_divided(mixer := with_heads(n))}
ALIKE = [n for n, mixer in DIVIDED.items() if "heads" in mixer._modules and mixer.heads.alike]


def test_heads_are_alike_in_these():
    assert {"softmax", "local", "linear", "performer", "longformer"} < set(ALIKE)
    assert not {"rfa", "head_mix", "bigbird", "transformer_xl", "scored"} & set(ALIKE)
    unlike = {"softmax": {"position": "alibi"}, "longformer": {"dilation": [1, 2, 1, 2]}}
    unlike |= {"strided": {"merged": False}, "performer": {"per_head": True}}
    for name, options in unlike.items():
        assert not with_heads(name, **options).heads.alike


@pytest.mark.parametrize("options", [{}, {"num_kv_heads": 2}], ids=["", "grouped"])
@pytest.mark.parametrize("name", ALIKE)
def test_two_halves_of_the_heads_sum_to_the_whole(name, options):
    whole = with_heads(name, **options)
    halves = [halved(whole, part=part) for part in (0, 1)]
    subject = Subject(lambda: whole)
    x, requests = subject.x, (r for r in subject.requests() if r.mask.pairwise is None)
    for request in requests:
        *parts, y = (request(mixer, x) for mixer in (*halves, whole))
        torch.testing.assert_close(sum(parts), y, **EXACT)
        *parts, seen = (request(mixer.observe, x).heads for mixer in (*halves, whole))
        torch.testing.assert_close(torch.cat(parts, 1), seen, **EXACT)
    if subject.can.streaming:
        streams = (feed(z, x, z.initial_state(2, max_len=16), (3, 1, 9)) for z in (*halves, whole))
        *parts, y = (y for y, _ in streams)
        torch.testing.assert_close(sum(parts), y, **EXACT)


@pytest.mark.parametrize("name", [name for name in DIVIDED if name not in ALIKE])
def test_a_part_of_the_heads_is_refused_where_they_are_not_alike(name):
    part, x = halved(DIVIDED[name]), torch.randn(2, 8, 24).double()
    with pytest.raises(ShapeError, match=REFUSED):
        part(x, mask=Subject(lambda: part).mask)
    if part.capabilities.streaming:
        with pytest.raises(ShapeError, match=REFUSED):
            part.extend(x[:, :1], part.initial_state(2))


@pytest.mark.parametrize("name", DIVIDED)
def test_queries_and_keys_alone_are_not_divided(name):
    part, x = halved(DIVIDED[name], ("query", "key")), torch.randn(2, 8, 24).double()
    if any(hasattr(m, "query") for m in part.modules()):
        words = r"Heads cannot (make \d heads|mix 2 heads of queries with)"
        with pytest.raises(ShapeError, match=words):
            part(x, mask=Subject(lambda: part).mask)


def test_a_head_is_not_cut():
    part, x = with_heads("softmax"), torch.randn(2, 8, 24).double()
    part.heads.query = nn.Linear(24, 9).double()
    with pytest.raises(ShapeError, match="width 9"):
        part(x)


def test_widths_of_keys_and_of_values_are_set_apart():
    heads = Heads(10, 4, num_kv_heads=2, key_dim=3, value_dim=5, repeat=True)
    q, k, v = heads.split(torch.randn(2, 7, 10))
    assert (q.shape, k.shape, v.shape) == ((2, 4, 7, 3), (2, 4, 7, 3), (2, 4, 7, 5))
    assert torch.equal(k[:, 0], k[:, 1]) and not torch.equal(k[:, 1], k[:, 2])
    assert heads.merge(v).shape == (2, 7, 10)
    assert Heads(10, 4, head_dim=6).query.out_features == 24
    with pytest.raises(OptionError, match="num_kv_heads must be 4"):
        Heads(8, 4, num_kv_heads=2, shared_qk=True)
