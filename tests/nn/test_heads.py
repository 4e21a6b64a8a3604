"""Projections of another width than the heads', as tensor parallel leaves them, are refused rather than mixed wrongly."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from regard import MIXERS, ShapeError, build
from regard.nn.heads import Heads
from regard.nn.values import Values

REFUSED = r"Heads cannot make \d heads of 6 of a projection of width \d+: a process of tensor parallel .* width \d+"


def half(layer: nn.Linear, dim: int) -> nn.Linear:
    """One of two processes' part of the rows (0) or columns (1) of the weight."""
    kept = layer.weight.detach().chunk(2, dim)[0]
    made = nn.Linear(kept.shape[1], kept.shape[0], bias=False)
    made.weight = nn.Parameter(kept.clone())
    return made


def halved(mixer: nn.Module, names: tuple[str, ...]) -> nn.Module:
    mixer = copy.deepcopy(mixer)
    for module in mixer.modules():
        for name, layer in list(module.named_children()):
            if isinstance(layer, nn.Linear) and name in names:
                setattr(module, name, half(layer, int(name == "out")))
    return mixer


def with_heads(name: str) -> nn.Module:
    torch.manual_seed(0)
    return build(name, dim=24, num_heads=4, max_len=16).eval()


def replaced(name: str, names: tuple[str, ...]) -> bool:
    layers = [layer for m in with_heads(name).modules() for layer in m._modules if layer in names]
    ours = any(isinstance(module, Heads | Values) for module in with_heads(name).modules())
    return ours and bool(layers)


PARTS = [
    (name, names)
    for name in MIXERS.names()
    for names in (("query", "key", "value", "out"), ("query", "key"))
    if replaced(name, names)
]


@pytest.mark.parametrize(("name", "names"), PARTS)
def test_a_part_of_the_heads_is_refused_by_every_mixer(name, names):
    part, x = halved(with_heads(name), names), torch.randn(2, 8, 24)
    with pytest.raises(ShapeError, match=REFUSED):
        part(x)
    if part.capabilities.streaming:
        with pytest.raises(ShapeError, match=REFUSED):
            part.extend(x[:, :1], part.initial_state(2))


def test_the_width_is_checked_in_a_compiled_graph_without_a_break():
    torch.compiler.reset()
    mixer, x = build("softmax", dim=24, num_heads=4).eval(), torch.randn(2, 8, 24)
    compiled = torch.compile(mixer, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), mixer(x))


def _tensor_parallel(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    mixer, x = with_heads("softmax"), torch.randn(2, 8, 24)
    plan = {f"heads.{name}": ColwiseParallel() for name in ("query", "key", "value")}
    parallelize_module(
        mixer, init_device_mesh("cpu", (2,)), plan | {"heads.out": RowwiseParallel()}
    )
    with pytest.raises(ShapeError, match=REFUSED):
        mixer(x)
    dist.barrier()
    dist.destroy_process_group()


def test_tensor_parallel_is_refused(tmp_path):
    torch.multiprocessing.spawn(_tensor_parallel, (str(tmp_path),), nprocs=2)
    assert (tmp_path / "meeting").exists()  # both processes came here and ended well
