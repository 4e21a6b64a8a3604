"""Synthesized and low-rank mechanisms at any length: one exported program, and what a backward keeps."""

import math

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.export import Dim

import regard
from regard import MIXERS, Mask
from regard.core import growth

NAMES = (
    "compressed",
    "fnet",
    "gmlp",
    "linformer",
    "mixture",
    "mlp_mixer",
    "synthesizer_dense",
    "synthesizer_factorized_dense",
    "synthesizer_factorized_random",
    "synthesizer_random",
)
VARIANTS = [(name, v) for name in NAMES for v in ("default", *MIXERS[name].variants)]

ALIKE = (  # of other sizes alone
    ("compressed", "none"),
    ("fnet", "ortho"),
    ("gmlp", "narrow"),
    ("linformer", "narrow"),
    ("linformer", "headwise"),
    ("linformer", "key_value"),
    ("mixture", "synthetic"),
    ("mlp_mixer", "narrow"),
    ("synthesizer_dense", "narrow"),
    ("synthesizer_dense", "shared"),
    ("synthesizer_factorized_dense", "unequal"),
    ("synthesizer_factorized_random", "rank_2"),
    ("synthesizer_random", "fixed"),
)


def make(name, variant, max_len, impl=None):
    options = {} if variant == "default" else MIXERS[name].variants[variant]
    options = options if impl is None else options | {"impl": impl}
    if "num_slots" in options:
        options = options | {"num_slots": 128}
    return regard.build(name, dim=24, num_heads=3, max_len=max_len, **options)


def given(T, causal):
    x = torch.randn(2, T, 24, generator=torch.Generator().manual_seed(T), dtype=torch.float64)
    return x, Mask(causal, valid=torch.arange(T) < torch.tensor([[T], [T - 4]]))


@pytest.mark.parametrize(("name", "variant"), [v for v in VARIANTS if v not in ALIKE])
def test_a_program_exported_at_one_length_serves_all(name, variant):
    mixer = make(name, variant, 512).double().eval()
    causal = mixer.capabilities.causal is True
    (x, mask), free = given(64, causal), {1: Dim.DYNAMIC}
    program = torch.export.export(
        mixer,
        (x,),
        {"mask": mask},
        dynamic_shapes={"x": free, "mask": [free, None, None, None]},
        prefer_deferred_runtime_asserts_over_guards=True,
    ).module()
    for T in (9, 200, 511):
        x, mask = given(T, causal)
        torch.testing.assert_close(
            program(x, mask=mask), mixer(x, mask=mask), rtol=1e-10, atol=1e-10
        )


def kept(mixer, T) -> int:
    """Bytes that a forward pass keeps for its backward, beside parameters and input."""
    x = torch.randn(1, T, 24, requires_grad=True)
    own = {z.untyped_storage().data_ptr() for z in (x, *mixer.parameters(), *mixer.buffers())}
    sizes: dict[int, int] = {}

    def note(z):
        storage = z.untyped_storage()
        if storage.data_ptr() not in own:
            sizes[storage.data_ptr()] = storage.nbytes()
        return z

    with saved_tensors_hooks(note, lambda z: z):
        y = mixer(x, mask=Mask(causal=mixer.capabilities.causal is True))
    del y
    return sum(sizes.values())


@pytest.mark.parametrize("impl", ["auto", "plain"])
@pytest.mark.parametrize(("name", "variant"), [v for v in VARIANTS if v not in ALIKE])
def test_what_a_backward_needs_grows_as_declared(name, variant, impl):
    if name == "mlp_mixer" and impl == "plain":
        pytest.skip("it has one form")
    mixer = make(name, variant, 4096, None if name == "mlp_mixer" else impl)
    short, long = kept(mixer, 1024), kept(mixer, 4096)
    slope = math.log(max(long, 1) / max(short, 1)) / math.log(4)
    assert slope <= growth(mixer.capabilities.memory, 1024, 4096) + 0.1
