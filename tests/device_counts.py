"""What a pass does on a device that is no CPU, counted on tensors without values: python -m tests.device_counts [names]

Prints one JSON object a mechanism: for every pass the number of operations that a device would launch as kernels, and the
places where the host would wait for a result. A device of Python's own is registered for the whole process, so that tests run this in
another one. Fused softmax counts as the operations that it replaces; what the backward computes again is not counted.
A plan of tiles that compares masks, once for a pattern and a length, is answered with yes: equal tiles are one batch, as
with values, and their masks, which hide nothing then, are not counted.
"""

import collections
import json
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn import Parameter
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import regard
from regard import Mask, fast
from regard.functional import rows
from regard.mixers._patterned import PatternMixer

DEVICE, T, DIM = "counted", 40, 32
LONG = (2048, 4096)
TILED = (
    *("compressed", "fixed_patterns", "gau", "gmlp", "luong_local", "mixture", "transformer_xl"),
    *("synthesizer_dense", "synthesizer_random", "synthesizer_factorized_dense"),
    *("synthesizer_factorized_random", "forgetting", "indexed", "moba", "native_sparse"),
)
"""Tiles of 256 queries, one after the other, so that no scores of all pairs are stored."""
ERASING = ("gated_delta", "kimi_delta")
"""A state that erases passes from chunk to chunk through a product of matrices."""
GROWS = {*TILED, *ERASING}
"""Mechanisms that launch more kernels for longer sequences."""
aten = torch.ops.aten
EMPTY = {
    *(aten.detach.default, aten.lift_fresh.default, aten.empty_like.default),
    *(aten.empty.memory_format, aten.empty_strided.default),
    *(aten.new_empty.default, aten.new_empty_strided.default),
}


class Counts(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.launches = 0
        self.waits: collections.Counter[str] = collections.Counter()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = _on_device((args, kwargs))
        if given and _waits(op, args):
            self.waits[f"{op} at {_place()}"] += 1
            if op is aten._local_scalar_dense.default:
                return True if args[0].dtype == torch.bool else 1
        result = op(*args, **kwargs)
        if not (given or _on_device(result)) or op.namespace != "aten":
            return result
        if op in (aten._to_copy.default, aten.copy_.default):
            given = pytree.tree_leaves((args, result))
            if len({z.device.type for z in given if isinstance(z, Tensor)}) > 1:
                self.waits[f"copy between devices at {_place()}"] += 1
        self.launches += not op.is_view and op not in EMPTY
        return result


def _on_device(tree) -> list[Tensor]:
    leaves = pytree.tree_leaves(tree)
    return [z for z in leaves if isinstance(z, Tensor) and z.device.type == DEVICE]


def _waits(op, args) -> bool:
    if op is aten.index.Tensor:
        return any(z is not None and z.dtype in (torch.bool, torch.uint8) for z in args[1])
    return bool({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(op.tags))


def _place() -> str:
    frames = (f for f in reversed(traceback.extract_stack()) if "/regard/" in f.filename)
    return next((f"{f.filename.rpartition('/regard/')[2]}, {f.name}" for f in frames), "torch")


def built(name: str, max_len: int = T + 8, **options: Any) -> regard.Mixer:
    with torch.device("meta"):
        return regard.build(name, dim=DIM, num_heads=2, max_len=max_len, **options).eval()


def on_device(mixer: regard.Mixer) -> regard.Mixer:
    """With uninitialised parameters and buffers."""
    for part in mixer.modules():
        for table in (part._parameters, part._buffers, part.__dict__):
            for name, z in table.items():
                if isinstance(z, Tensor):
                    new = torch.empty(z.shape, dtype=z.dtype, device=DEVICE)
                    table[name] = Parameter(new) if isinstance(z, Parameter) else new
    return mixer


def counted(call: Callable[[], object]) -> dict[str, Any]:
    with Counts() as counts:
        call()
    return {"launches": counts.launches, "waits": dict(counts.waits)}


def passes(mixer: regard.Mixer, x: Tensor, mask: Mask, what: str = "") -> dict[str, dict]:
    call = partial(mixer, x, mask=mask)
    with torch.no_grad():
        forward = counted(call)
    leaves = [z for z in (x, *mixer.parameters()) if z.requires_grad]
    backward = counted(lambda: torch.autograd.grad(call().sum(), leaves, allow_unused=True))
    return {f"forward{what}": forward, f"backward{what}": backward}


def long_counts(mixer: regard.Mixer) -> dict[str, dict]:
    """One sequence at real lengths, in causal order where the mixer has one.

    A float32 number for each head and each pair of 4,096 tokens fills the room of a device, 128 MiB. What needs such
    numbers launches its kernels once more for every 128 MiB beyond that.
    """
    found, mask = {}, Mask(causal=bool(mixer.capabilities.causal))
    for length in LONG:
        x = torch.randn(1, length, DIM, device=DEVICE, requires_grad=True)
        found |= passes(mixer, x, mask, f" {length}")
    return found


def around_one_kernel(name: str, x: Tensor, **options: Any) -> dict[str, Any]:
    """A causal forward pass in which attention is one launch, as FlexAttention and fused softmax are on CUDA."""
    mixer = on_device(built(name, **options))

    def kernel(q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> Tensor:
        return v.clone()

    flex = replace(fast.FLEX, function=kernel, shortest=0, dtypes=())
    alone = dict.fromkeys((("pattern", DEVICE), ("window", DEVICE)), flex)
    alone["softmax", DEVICE] = replace(fast.SDPA, function=kernel)
    narrow = patch.object(fast.flex, "NARROWEST", 1)
    with patch.dict(fast.FAST, alone), narrow, torch.no_grad():
        return counted(lambda: mixer(x, mask=Mask(causal=True)))


def counts(mixer: regard.Mixer) -> dict[str, dict]:
    name, can, found = mixer.name, mixer.capabilities, {}
    x = torch.randn(2, T, DIM, device=DEVICE, requires_grad=True)
    masks = {"plain": Mask()} if can.bidirectional else {}
    if can.causal:
        masks["causal"] = Mask(causal=True)
    if can.padding:
        valid = torch.ones(2, T, dtype=torch.bool, device=DEVICE)
        masks["padded"] = Mask(causal=not can.bidirectional, valid=valid)
    for label, mask in masks.items():
        found |= passes(mixer, x, mask, f", {label}")
    if name == "local" or issubclass(type(mixer), PatternMixer):
        found["flex"] = around_one_kernel(name, x, impl="flex")
    elif name == "softmax":
        found["fused"] = around_one_kernel(name, x)
    if can.streaming:
        with torch.no_grad():
            with Counts():
                _, state = mixer.extend(x, mixer.initial_state(2, max_len=T + 8), donate=True)
            states = [state]
            for what, donate in (("copying decode", False), ("decode", True)):

                def step(donate=donate) -> None:
                    states.append(mixer.extend(x[:, :1], states[-1], donate=donate)[1])

                found[what] = counted(step)
            for kind in sorted(can.positions & {"rotary", "alibi", "t5"}):
                other = on_device(built(name, position=kind))
                found[kind] = counted(lambda z=other: z.extend(x, z.initial_state(2)))
        shapes = {tuple(z.shape for z in pytree.tree_leaves(state)) for state in states}
        found["decode"]["static"] = len(shapes) == 1
    return found


def main(names: list[str]) -> None:
    _setup_privateuseone_for_python_backend(DEVICE)
    torch.autograd.set_multithreading_enabled(False)
    # Checkpoints compute a pass again inside the backward, which a device of Python's own cannot do.
    rows.checkpoint = lambda function, *arguments, **_: function(*arguments)
    fast.FAST["softmax", DEVICE] = fast.FAST["softmax", "cuda"]
    for name in names or regard.MIXERS.names():
        mixer, longer = built(name), built(name, LONG[-1])
        with FakeTensorMode(shape_env=ShapeEnv()):
            torch._C._set_only_lift_cpu_tensors(True)
            found = counts(on_device(mixer))
            found |= {} if name in GROWS else long_counts(on_device(longer))
        print(json.dumps({"mixer": name, **found}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
