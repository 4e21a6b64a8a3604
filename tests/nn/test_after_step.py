"""after_step is called for a whole model by one hook, and training without it warns where it matters."""

import warnings

import pytest
import torch
from accelerate import Accelerator
from torch import nn

import regard
from regard.mixers import HeadGroup

X = torch.randn(2, 6, 16)


class Layers(nn.Module):
    def __init__(self, *names, **options):
        super().__init__()
        made = [regard.build(n, dim=16, num_heads=2, max_len=16, **options) for n in names]
        self.layers = nn.ModuleList(made)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


def step(model, optimizer, backward=torch.Tensor.backward):
    backward(model(X).square().mean())
    optimizer.step()
    optimizer.zero_grad()


def moved(model, call, *arguments):
    """Of each mixer, whether the call moves its centroids."""
    before = [layer.centroids.value.clone() for layer in model.layers]
    call(*arguments)
    after = [layer.centroids.value for layer in model.layers]
    return [not torch.equal(old, new) for old, new in zip(before, after, strict=True)]


def test_a_hook_of_the_optimiser_reaches_every_mixer_and_can_be_removed():
    model = Layers("routing", "routing")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    assert moved(model, step, model, optimizer) == [False, False]
    hook = regard.nn.call_after_step(optimizer, model)
    assert moved(model, step, model, optimizer) == [True, True]
    hook.remove()
    assert moved(model, step, model, optimizer) == [False, False]
    assert moved(model, regard.nn.after_step, nn.Sequential(model)) == [True, True]
    groups = regard.build("head_groups", dim=16, num_heads=2, max_len=16, **ROUTED)
    groups.layers = groups.groups
    for call, whole in ((groups.after_step, ()), (regard.nn.after_step, (groups,))):
        step(groups, torch.optim.SGD(groups.parameters(), 0.1))
        assert moved(groups, call, *whole) == [True]


def test_in_accelerates_loop_steps_that_are_skipped_are_no_steps():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = Layers("performer", redraw_every=1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    regard.nn.call_after_step(optimizer, model)
    projection, redrawn = model.layers[0].projection, []
    for _ in range(4):
        before = projection.w.clone()
        with accelerator.accumulate(model):
            step(model, optimizer, accelerator.backward)
        redrawn.append(not torch.equal(before, projection.w))
    assert redrawn == [False, True, False, True]


def warnings_of(model, hooked=False, show="default"):
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    if hooked:
        regard.nn.call_after_step(optimizer, model)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter(show)
        for _ in range(30):
            step(model, optimizer)
        for _ in range(30):
            model(X)
    return [str(w.message) for w in said if "after_step" in str(w.message)]


ROUTED = {"groups": (HeadGroup("routing", 2, {"num_clusters": 3, "window_size": 4}),)}
WARNED = [("routing", {}), ("performer", {}), ("rfa", {"pool_size": 4}), ("head_groups", ROUTED)]
SILENT = [("performer", {"redraw_every": None}), ("rfa", {}), ("linear", {})]


@pytest.mark.parametrize(("name", "options"), WARNED + SILENT)
def test_training_without_it_warns_once_where_it_matters(name, options):
    said = warnings_of(Layers(name, **options), show="always")
    assert len(said) == ((name, options) in WARNED)
    assert all(text.startswith(f"{name} was trained for 10 updates without") for text in said)
    assert not warnings_of(Layers(name, **options), hooked=True, show="always")


def test_a_model_warns_once_for_each_name_and_again_after_it_was_called():
    first, second = Layers(*["routing"] * 3), Layers("linear", "performer", "routing")
    assert [len(warnings_of(model)) for model in (first, first, second)] == [1, 0, 2]
    regard.nn.after_step(first)
    assert len(warnings_of(first)) == 1
    assert len(warnings_of(regard.build("routing", dim=16, num_heads=2, max_len=16))) == 1
