from functools import partial

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from regard import Mask, OptionError, UnsupportedError, build
from regard.functional.kmeans import nearest, standardised
from regard.nn import after_step
from regard.nn.centroids import EPS
from tests.command import in_four_processes

X = torch.randn(4, 11, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def routing(**options):
    torch.manual_seed(0)
    given = {"num_clusters": 3, "window_size": 4} | options
    return build("routing", dim=24, num_heads=3, max_len=64, **given).double().train()


def by_hand(mixer, batches, decay):
    mu = mixer.centroids.value
    sums, counts = mixer.centroids.sums * decay, mixer.centroids.counts * decay
    for x, valid in batches:
        here = torch.ones(x.shape[:2], dtype=torch.bool) if valid is None else valid
        for project in (mixer.heads.queries, mixer.heads.keys):
            z = F.layer_norm(project(x), mu.shape[-1:])
            mine = F.one_hot((z @ mu.mT).argmax(-1), mu.shape[1]) * here[:, None, :, None].double()
            sums = sums + (1 - decay) * torch.einsum("bhtc,bhtk->hck", mine, z)
            counts = counts + (1 - decay) * mine.sum((0, 2))
    n = counts.sum(-1, keepdim=True)
    return sums / ((counts + EPS) / (n + counts.shape[-1] * EPS) * n)[..., None]


def recomputed(mixer):
    return partial(checkpoint, mixer, use_reentrant=False)


def reentrant(mixer):
    return lambda x, mask: checkpoint(partial(mixer, mask=mask), x, use_reentrant=True)


def compiled(mixer):
    torch.compiler.reset()
    return torch.compile(mixer, fullgraph=True, backend="eager")


@pytest.mark.parametrize("wrap", [None, recomputed, reentrant, compiled])
@pytest.mark.parametrize("causal", [False, True])
def test_centroids_move_as_the_formula_says(wrap, causal):
    mixer = routing(decay=0.9)
    valid = torch.rand(2, 11, generator=torch.Generator().manual_seed(1)) < 0.7
    batches = [(torch.randn(2, 11, 24, dtype=torch.float64), given) for given in (None, valid)]
    with torch.no_grad():
        wanted = by_hand(mixer, batches, 0.9)
    for x, present in batches:  # two forwards to one step: gradients, and counts, accumulate
        mask = Mask(causal=causal, valid=present)
        call = mixer if wrap is None else wrap(mixer)
        call(x.clone().requires_grad_(), mask=mask).sum().backward()
    before = mixer.centroids.value.clone()
    mixer.after_step()
    assert not torch.equal(mixer.centroids.value, before)
    torch.testing.assert_close(mixer.centroids.value, wanted, rtol=0, atol=1e-12)


def test_evaluation_and_steps_without_tokens_move_nothing():
    mixer = routing()
    before = mixer.centroids.value.clone()
    x = torch.randn(2, 11, 24, dtype=torch.float64)
    mixer.eval()(x).sum().backward()
    with torch.no_grad():
        mixer.train()(x)
    mixer.after_step()
    assert torch.equal(mixer.centroids.value, before)


def test_commitment_loss_is_its_formula_and_pulls_the_projections():
    mixer = routing()
    x = torch.randn(2, 7, 24, dtype=torch.float64)
    valid = torch.arange(7) < torch.tensor([[7], [4]])
    loss = mixer.commitment_loss(x, mask=Mask(valid=valid))
    wanted = 0.0
    for project in (mixer.heads.queries, mixer.heads.keys):
        z = standardised(project(x))
        cluster = nearest(z, mixer.centroids.value)
        for b, t in valid.nonzero().tolist():
            for h in range(3):
                mu = mixer.centroids.value[h, cluster[b, h, t]]
                wanted = wanted + (z[b, h, t] - mu).square().mean() / (3 * valid.sum())
    torch.testing.assert_close(loss, wanted, rtol=0, atol=1e-12)
    loss.backward()
    assert mixer.heads.query.weight.grad.abs().max() > 0
    assert mixer.heads.value.weight.grad is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_centroids_move_in_sixteen_bits_too(dtype):
    mixer = routing().to(dtype)
    before = mixer.centroids.value.clone()
    x = torch.randn(2, 40, 24, generator=torch.Generator().manual_seed(1)).to(dtype)
    for _ in range(20):
        mixer(x).float().sum().backward()
        mixer.after_step()
    kept = mixer.centroids.sums, mixer.centroids.counts, *mixer.centroids.since_update()
    assert {z.dtype for z in kept} == {torch.float32}
    assert not any("staged" in name for name in mixer.state_dict())
    assert mixer.centroids.value.dtype == dtype
    forgets = mixer.centroids.counts > 1.1  # 0.999 is 1 in bfloat16
    assert forgets.any()
    assert (mixer.centroids.value - before).abs().max() > 0.01


@pytest.mark.parametrize("assign", [False, True])
def test_what_is_made_without_memory_and_loaded_moves_as_what_was_saved(assign):
    saved = routing(seed=0)
    with torch.device("meta"):
        loaded = routing(seed=0)
    if not assign:
        loaded.to_empty(device="cpu")
        loaded.centroids.since_update().sums.fill_(torch.nan)  # as memory may be
    loaded.load_state_dict(saved.state_dict(), assign=assign)
    for mixer in (saved, loaded):
        mixer(X).sum().backward()
        mixer.after_step()
    torch.testing.assert_close(loaded.centroids.value, saved.centroids.value, rtol=0, atol=0)


def _moved(x, step, wrap=lambda mixer: mixer):
    mixer = routing(seed=0)
    model = wrap(mixer)
    model(x).sum().backward()
    step(model)
    return mixer.centroids.value


def _several(rank, folder):
    """Writes where centroids move to: by halves over all, one half in each of two pairs, all the data in every process."""
    half = X[2:] if rank % 2 else X[:2]  # of the mesh's columns; its rows hold the same data
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("same", "split"))
    split, (alone, _) = mesh["split"].get_group(), dist.new_subgroups(group_size=1)
    found = {
        "subgroup": _moved(half, lambda model: after_step(model, split)),
        "wrapped": _moved(half, after_step, partial(DistributedDataParallel, process_group=split)),
        "alone": _moved(X, lambda model: after_step(model, alone)),
    }
    if rank == 1:  # no other process waits, and none is waited for
        found["one mixer"] = _moved(X, lambda mixer: mixer.after_step())
        with pytest.raises(OptionError, match=r"which of 4 processes hold .* data.*Pass group="):
            _moved(X, after_step)
        with pytest.raises(OptionError, match="that this process is part of, got"):
            _moved(X, lambda model: after_step(model, dist.GroupMember.NON_GROUP_MEMBER))
    torch.save(found, f"{folder}/{rank}.pt")


def test_processes_add_up_what_they_counted_over_the_group_that_splits_the_data(tmp_path):
    in_four_processes(_several, str(tmp_path))
    whole = _moved(X, after_step)
    for rank in range(4):
        for how, found in torch.load(tmp_path / f"{rank}.pt", weights_only=True).items():
            torch.testing.assert_close(found, whole, rtol=0, atol=1e-12, msg=f"{rank}: {how}")


def test_a_second_pass_through_a_forward_counts_no_token_again():
    x = torch.randn(2, 13, 24, dtype=torch.float64, requires_grad=True)
    once, twice = routing(), routing()
    once(x).square().sum().backward()
    (dx,) = torch.autograd.grad(twice(x).square().sum(), x, create_graph=True)
    dx.square().sum().backward()
    assert all(z.any() for z in once.centroids.staged)
    torch.testing.assert_close(twice.centroids.staged, once.centroids.staged, rtol=0, atol=0)


def test_torch_func_is_refused_in_training():
    mixer, x = routing(), torch.randn(3, 1, 13, 24, dtype=torch.float64)
    with pytest.raises(UnsupportedError, match=r"torch\.export cannot carry. Call eval\(\) first"):
        torch.func.vmap(mixer)(x)
    assert torch.func.vmap(mixer.eval())(x).shape == x.shape


def bigbird():
    return build("bigbird", dim=24, num_heads=3, max_len=64, block_size=8).double()


@pytest.mark.parametrize("make", [routing, bigbird])
@pytest.mark.parametrize("causal", [False, True])
def test_a_compiled_mixer_takes_lengths_that_vary(causal, make):
    mixer, mask = make().eval(), Mask(causal=causal)
    call = compiled(mixer)
    for length in (33, 47, 64):  # the second makes the length a symbol
        x = torch.randn(2, length, 24, dtype=torch.float64)
        torch.testing.assert_close(call(x, mask=mask), mixer(x, mask=mask))
