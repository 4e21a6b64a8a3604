"""fla-core's kernel in the place of eager causal sums: the same function, and its words where it cannot serve.

Without CUDA the kernel is a loop of the published signature; TRITON_INTERPRET=1 runs fla-core's own, slowly, on a CPU.
"""

import os
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.autograd import grad

import regard
from regard import Mask, UnsupportedError, fast
from regard.core.packages import lacking
from regard.fast import fla
from regard.functional.linear import weighted_sums
from regard.functional.rows import Form, recorded
from regard.testing import check_mixer
from tests.functional.test_linear import drawn
from tests.laws.catalogue import factory

LACKS = lacking("fla-core", "0.6")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and LACKS is None
ON_CUDA = torch.cuda.is_available() and LACKS is None
LAWS = ("reference", "streaming", "second_derivative", "fast")
MIXERS = [
    ("linear", {}),
    ("performer", {"num_features": 11}),
    ("performer", {"num_features": 8, "features": "relu"}),
    ("rfa", {"num_features": 32}),
    ("rfa", {"num_features": 9, "features": "arc_cosine", "gate": True}),
]
IDS = [f"{name} {' '.join(map(str, options.values()))}" for name, options in MIXERS]


def loop(q, k, v, g=None, *, scale=None, initial_state=None, output_final_state=False):
    """`fla.ops.simple_gla.chunk_simple_gla` as a recurrence, with its layout and its default scale."""
    (B, T, H, M), V = q.shape, v.shape[-1]
    assert k.shape == q.shape and v.shape[:3] == (B, T, H) and (g is None or g.shape == (B, T, H))
    assert q.dtype == k.dtype == v.dtype and M % 2 == V % 2 == 0  # as the 16-bit kernels ask
    wide = torch.promote_types(q.dtype, torch.float32)
    scale = M**-0.5 if scale is None else scale
    S = q.new_zeros(B, H, M, V, dtype=wide) if initial_state is None else initial_state.to(wide)
    o = []
    for t in range(T):
        decay = 1 if g is None else g[:, t, :, None, None].exp()
        S = decay * S + (k[:, t, :, :, None] * v[:, t, :, None, :]).to(wide)
        o.append((scale * q[:, t, :, None].to(wide) @ S)[:, :, 0])
    return torch.stack(o, dim=1).to(q.dtype), S if output_final_state else None


@pytest.fixture
def on_this_cpu(monkeypatch):
    """ "auto" takes fla here, with the loop for its kernel."""
    entry = fast.FAST["causal sums", "cuda"]
    dtypes = (*entry.dtypes, torch.float32, torch.float64)

    def unfit(q, k, v, *more, **options):
        return fla.unfit(q, k, v, **options)  # of no decay: the loop needs no compiler

    here = replace(entry, dtypes=dtypes, shortest=2, package=None, unfit=unfit)
    monkeypatch.delitem(fast.FAST, ("favor", "cpu"))
    monkeypatch.setitem(fast.FAST, ("causal sums", "cpu"), here)
    monkeypatch.setitem(fast.FAST, ("causal sums", "cuda"), here)
    monkeypatch.setattr(fla, "_kernel", lambda: loop)


def compared(T, M, V, *, decayed, begun, dtype):
    shapes = (2, 3, T, M), (2, 3, T, M), (2, 3, T, V), (2, 3, T), (2, 3, M, V), (2, 3, M)
    q, k, v, g, S, z = drawn(*shapes, dtype=dtype)
    inputs = [q.abs(), k.abs(), v, *((S.abs(), z.abs()) if begun else ())]
    inputs = [x.requires_grad_() for x in inputs]
    g = -g.abs().requires_grad_() if decayed else None
    results = []
    for sums in (partial(fla.causal_sums, form=Form()), weighted_sums):
        found = sums(*inputs[:3], g, *inputs[3:])
        weights = drawn(*(x.shape for x in found), dtype=dtype)
        total = sum((x * w).sum() for x, w in zip(found, weights, strict=True))
        results.append([*found, *grad(total, inputs + [g] * decayed)])
    return results


@pytest.mark.parametrize("decayed", [False, True])
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize(("T", "M", "V"), [(2, 5, 3), (70, 16, 16), (131, 7, 33)])
def test_the_adapter_is_the_eager_form(T, M, V, begun, decayed, monkeypatch):
    monkeypatch.setattr(fla, "_kernel", lambda: loop)
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
        ours, eager = compared(T, M, V, decayed=decayed, begun=begun, dtype=dtype)
        torch.testing.assert_close(ours, eager, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("name", "options"), MIXERS, ids=IDS)
def test_the_laws_hold(name, options, on_this_cpu):
    with recorded() as used:
        check_mixer(factory(name, options), LAWS, blocks="own")
    assert "fla" in used


def test_a_package_that_is_not_there(monkeypatch):
    assert lacking("torch", "2.10") is None
    assert lacking("torch", "999").startswith("torch 999 or later, here is 2.")
    words = "fla-core 0.6 or later: pip install 'fla-core>=0.6'"
    assert lacking("no-such", "1.0") == "no-such 1.0 or later: pip install 'no-such>=1.0'"
    monkeypatch.setattr(fast, "lacking", lambda *package: words)
    for name, options in MIXERS:
        with pytest.raises(UnsupportedError, match=rf"{name}: impl='fla' needs {words}"):
            regard.build(name, dim=8, num_heads=2, impl="fla", **options)
    with recorded() as used:
        regard.build("linear", dim=8, num_heads=2)(torch.zeros(1, 2000, 8), mask=Mask(causal=True))
    assert used == {"plain"}


def test_what_it_cannot_serve_is_refused(monkeypatch):
    monkeypatch.setattr(fast, "lacking", lambda *package: None)
    monkeypatch.setattr(fla, "lacking", lambda *package: "triton 3.7.1 or later")
    entry = fast.FAST["causal sums", "cuda"]
    q = torch.zeros(1, 1, 4, 4)
    g = torch.zeros(1, 1, 4)
    named = Form("fla")
    assert "bfloat16, torch.float16, not torch.float32" in entry.refuses(named, (q, q, q), {})
    half = q.bfloat16()
    assert entry.refuses(named, (half, half, half), {}) is None
    needs = "with a decay it needs triton 3.7.1 or later"
    assert entry.refuses(named, (half, half, half, g), {}) == needs
    with pytest.raises(UnsupportedError, match="efficient has no implementation 'fla'"):
        regard.build("efficient", dim=8, num_heads=2, impl="fla")


@pytest.mark.skipif(not INTERPRETED, reason="on a CPU: needs fla-core and TRITON_INTERPRET=1")
@pytest.mark.parametrize("decayed", [False, True])
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize(("T", "M", "V"), [(64, 16, 16), (100, 21, 33), (128, 64, 24)])
def test_the_kernel_itself_interpreted(T, M, V, begun, decayed, monkeypatch):
    close_the_gaps_of_the_interpreter(monkeypatch)
    ours, eager = compared(T, M, V, decayed=decayed, begun=begun, dtype=torch.float32)
    for a, b in zip(ours, eager, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * b.abs().max().item())


def close_the_gaps_of_the_interpreter(monkeypatch):
    """It times settings on a device, and counts loops in numbers that have none of a tensor's methods."""
    from fla.ops.common import chunk_h
    from triton.runtime import autotuner, interpreter

    def counters(*bounds):
        return map(interpreter._implicit_cvt, range(*map(int, bounds)))

    monkeypatch.setattr(autotuner.Autotuner, "_bench", lambda *args, **settings: [0.0] * 3)
    monkeypatch.setattr(chunk_h, "range", counters, raising=False)


@pytest.mark.skipif(not ON_CUDA, reason="fla-core's kernel on CUDA: needs a device and fla-core")
@pytest.mark.parametrize(("name", "options"), MIXERS, ids=IDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_kernel_itself_on_cuda(name, options, dtype):
    """No further from float64 than twice the eager form is, in outputs and in gradients."""
    (x,) = drawn((2, 1500, 64))
    mask = Mask(causal=True, valid=torch.arange(1500) < torch.tensor([[1500], [1400]]))
    results = {}
    for impl, kind in (("plain", torch.float64), ("plain", dtype), ("auto", dtype)):
        torch.manual_seed(0)
        mixer = regard.build(name, dim=64, num_heads=2, impl=impl, **options).to(kind)
        mixer, given = mixer.cuda(), x.to("cuda", kind).requires_grad_()
        with recorded() as used:
            y = mixer(given, mask=Mask(causal=True, valid=mask.valid.cuda()))
        gradients = grad(y.square().sum(), [given, *mixer.parameters()])
        results[impl, kind] = [z.double() for z in (y, *gradients)]
    assert used == {"fla"}
    exact, eager, ours = results.values()
    for e, a, b in zip(exact, eager, ours, strict=True):
        assert (b - e).norm() <= 2 * (a - e).norm() + 1e-3 * e.norm()
