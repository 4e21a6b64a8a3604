"""What needs a CUDA device, in one command: python benchmarks/cuda.py --out DIR [--part laws|speed] [--minutes 8]

It has not run on CUDA yet. Rows go to DIR/laws.jsonl and DIR/speed.jsonl, one JSON object a line, each written when it is
measured: the command may be killed at any time, and goes on behind the rows that it finds. Rows that most depends on come first.

laws:   kernels at 1,100 and 4,096 tokens with impl="auto" beside the same function in float64, in float32 and bfloat16: forward, gradient, and the
        last tokens once more by a state; then every law on every mechanism with tensors on the device, streaming and compile among them. The
        oracles stay on the CPU.
speed:  the device's matrix and copy rates; every mechanism, as chosen and in plain PyTorch, beside fused softmax (the arena's timing);
        decoding steps as a CUDA graph beside their projections; FlashAttention, the other kernels of torch's fused softmax and FlexAttention with the
        block masks of patterns; public packages.
Training there is `regard arena` and `regard train`, which take the device that they find.

A machine without a network needs torch for CUDA (2.10 or later, with Triton) and wheels of the rest, for its own version of Python. Where there is
a network: pip download --only-binary :all: --python-version 3.12 -d wheels einops jaxtyping rich safetensors tyro;
fla-core and the packages under peers are optional. Remove torch and nvidia-* from the folder. There, in the
checkout, without pip: for w in wheels/*.whl; do python -m zipfile -e $w site; done; PYTHONPATH=.:site python benchmarks/cuda.py --out DIR
"""

import hashlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from measuring import Flag, medians
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._device import _device_constructors
from torch.utils._pytree import tree_map

import regard
from regard.lab.experiment.provenance import PACKAGE, commit
from regard.testing import LAWS, judge_mixer, own_oracle

Part = Literal["laws", "speed"]
FACTS = {"dim": 24, "num_heads": 3, "max_len": 64}
FIRST = ("streaming", "compiled", "padding", "causality", "poison", "autocast", "reference", "long")
DTYPES = ("float32", "bfloat16")
KERNEL_LENGTHS = (1100, 4096)
KERNEL_BOUND = 2.0  # times the error of plain PyTorch in the same type, and a few roundings


@dataclass(frozen=True)
class Plan:
    """What is run where. small: sizes for a test of this file."""

    device: str
    small: bool
    only: tuple[str, ...]

    @property
    def mixers(self) -> list[str]:
        return [regard.MIXERS[name].name for name in self.only or regard.MIXERS.names()]

    @property
    def lengths(self) -> tuple[int, ...]:
        return (32,) if self.small else (4096, 16384, 1024, 65536)

    @property
    def width(self) -> dict[str, int]:
        return {"dim": 32, "num_heads": 2} if self.small else {"dim": 512, "num_heads": 8}


Key = tuple[str, ...]
Job = Callable[[Plan, Key], dict[str, Any]]


def source_sha256() -> str:
    """Checksum of every Python file of the package, names included."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(f"{path.relative_to(PACKAGE).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def main(
    out: Path,
    part: Part | None = None,
    minutes: float = 8.0,
    device: str = "cuda",
    only: tuple[str, ...] = (),
    workers: int = 8,
    small: Flag = False,
) -> int:
    """Fill the files of rows until the time is over.

    Args:
        out: folder of the files
        part: laws or speed; both in this order by default
        minutes: after which the command ends, with what it has
        device: of the tensors; "cpu" with --small is a dry run
        only: names of mechanisms; all by default
        workers: processes that check laws side by side, and one at a time that measures speed; 1: all in this process
        small: tiny sizes
    """
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise regard.RegardError("no CUDA device here: try --device cpu --small, a dry run")
    out.mkdir(parents=True, exist_ok=True)
    plan, until = Plan(device, small, only), time.monotonic() + 60 * minutes
    for name in (part,) if part else get_args(Part):
        rows = Rows(out / f"{name}.jsonl", plan)
        todo = [(job, key) for job, key in PARTS[name](plan) if key not in rows.done]
        if workers > 1:
            _side_by_side(plan, todo, rows, until, workers if name == "laws" else 1)
            continue
        for job, key in todo:
            if time.monotonic() > until:
                break
            found = _guarded(job, plan, key)
            rows.add(key, found)
            if found.get("lost"):
                return 1
    return 0


class Rows:
    """A file of one JSON object a line; `done`: the keys of what it holds."""

    def __init__(self, path: Path, plan: Plan):
        self.path, self.done = path, set[Key]()
        self.origin = {
            "device": torch.cuda.get_device_name()
            if plan.device.startswith("cuda")
            else plan.device,
            "torch": torch.__version__,
            "python": sys.version.split()[0],
            "commit": commit(),
            "source": source_sha256()[:12],
            "small": plan.small,
        }
        if path.exists():
            written = path.read_bytes()
            whole = written[: written.rfind(b"\n") + 1]
            os.truncate(path, len(whole))  # a line that was cut off is measured again
            self.done = {tuple(json.loads(line)["key"]) for line in whole.splitlines()}

    def add(self, key: Key, found: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps({"key": key, **found, "origin": self.origin}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.done.add(key)
        told = found.get("error") or found.get("sentence") or found.get("ms") or ""
        print(" ".join(key), found.get("outcome", ""), str(told)[:150], flush=True)


def _guarded(job: Job, plan: Plan, key: Key) -> dict[str, Any]:
    """A row also where it fails: one mechanism without memory must not end the run."""
    began = time.perf_counter()
    try:
        found = job(plan, key)
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}"[:600]}
    if plan.device.startswith("cuda"):
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except RuntimeError:  # after an illegal access every later call fails
            found["lost"] = True
    return found | {"seconds": round(time.perf_counter() - began, 3)}


def _side_by_side(
    plan: Plan, todo: list[tuple[Job, Key]], rows: Rows, until: float, workers: int
) -> None:
    """Where a process dies or loses the device, the rest is done by one process; a key that ends that one too is an error."""
    while todo and time.monotonic() < until:
        died = _in_processes(plan, todo, rows, until, workers)
        todo = [(job, key) for job, key in todo if key not in rows.done]
        if died and workers == 1:
            rows.add(todo.pop(0)[1], {"error": "its process died, or lost the device"})
        workers = 1 if died else workers


def _in_processes(
    plan: Plan, todo: list[tuple[Job, Key]], rows: Rows, until: float, workers: int
) -> bool:
    """True if a process died, or lost its device."""
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        workers,
        mp_context=spawn,
        initializer=torch.set_num_threads,
        initargs=(max(1, torch.get_num_threads() // workers),),
    )
    waiting = {pool.submit(_guarded, job, plan, key): key for job, key in todo}
    children, died = list(pool._processes.values()), False
    while waiting and not died and time.monotonic() < until:
        ready, _ = wait(waiting, timeout=until - time.monotonic(), return_when=FIRST_COMPLETED)
        for future in ready:
            key, error = waiting.pop(future), future.exception()
            lost = error is not None or "lost" in future.result()
            died = died or lost
            if not lost:
                rows.add(key, future.result())
    pool.shutdown(wait=False, cancel_futures=True)
    for child in children:
        child.terminate()
    return died


def _laws(plan: Plan) -> Iterator[tuple[Job, Key]]:
    lengths = (40,) if plan.small else KERNEL_LENGTHS
    yield from (
        (_kernel, ("kernel", dtype, str(length), causal, name))
        for dtype, length, causal, name in product(
            DTYPES, lengths, ("causal", "bidirectional"), plan.mixers
        )
    )
    laws = FIRST[:1] if plan.small else (*FIRST, *(law for law in LAWS if law not in FIRST))
    yield from ((_law, ("law", law, name)) for law, name in product(laws, plan.mixers))


def _law(plan: Plan, key: Key) -> dict[str, Any]:
    _, law, name = key

    def make() -> regard.Mixer:
        return regard.build(name, **FACTS).to(plan.device)

    with OnDevice(plan.device) as mode:
        oracle = own_oracle(make())
        assert oracle is not None

        def on_cpu(*args: Any, **kwargs: Any) -> Any:
            with mode.off():
                return _moved(oracle(*_moved(args, "cpu"), **_moved(kwargs, "cpu")), plan.device)

        (verdict,) = judge_mixer(make, law, oracle=on_cpu)
    worst = max(verdict.errors, default=None)
    return {"outcome": verdict.outcome, "sentence": verdict.sentence[:600], "worst": worst}


def _moved(tree: Any, device: str) -> Any:
    return pytree.tree_map_only(Tensor, lambda z: z.to(device), tree)


class OnDevice(TorchFunctionMode):
    """New tensors without a device are on this one; random numbers of a generator on the CPU are drawn there first."""

    def __init__(self, device: str):
        super().__init__()
        self.device, self.is_on = device, True
        self.makers = _device_constructors()

    @contextmanager
    def off(self) -> Iterator[None]:
        self.is_on = False
        try:
            yield
        finally:
            self.is_on = True

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not self.is_on or function not in self.makers or kwargs.get("device") is not None:
            return function(*args, **kwargs)
        if kwargs.get("generator") is not None:
            return function(*args, **kwargs).to(self.device)
        return function(*args, **kwargs | {"device": self.device})


def _kernel(plan: Plan, key: Key) -> dict[str, Any]:
    """Worst errors of outputs and gradients against float64, beside those of plain PyTorch in the same type."""
    _, dtype, length, order, name = key
    mixer = regard.build(name, **plan.width, max_len=int(length)).to(plan.device)
    mask = regard.Mask(causal=order == "causal")
    why = mixer.capabilities.refusals().get(order)
    if why is not None:
        return {"outcome": "does not apply", "sentence": str(why)}
    x = torch.randn(2, int(length), mixer.dim, generator=torch.Generator().manual_seed(0))
    seen: dict[str, Any] = {}

    def values(dtype: torch.dtype, impl: str) -> list[Tensor]:
        torch.manual_seed(0)
        options = {"impl": impl} if "impl" in mixer.options else {}
        one = regard.build(name, **plan.width, max_len=int(length), **options)
        one.load_state_dict(mixer.state_dict())
        one = one.to(plan.device, getattr(torch, rounded)).to(dtype).eval()
        given = x.to(plan.device, getattr(torch, rounded)).to(dtype).requires_grad_()
        with regard.functional.rows.recorded() as used:
            y = one(given, mask=mask)
        seen[impl] = ", ".join(sorted(used)) or "plain"
        (dx,) = torch.autograd.grad(y.float().pow(2).sum(), given)
        found = [y.detach().double(), dx.double()]
        return [*found, _streamed(one, given).double()] if streams else found

    rounded, streams = dtype, mask.causal and mixer.capabilities.streaming == "exact"
    exact = values(torch.float64, "plain")
    plain, chosen = (values(getattr(torch, dtype), impl) for impl in ("plain", "auto"))
    eps = torch.finfo(getattr(torch, dtype)).eps
    errors = {
        what: [float((z - e).abs().max() / e.abs().max()) for z in (a, b)]
        for what, e, a, b in zip(("forward", "gradient", "streaming"), exact, chosen, plain)  # noqa: B905
    }
    kept = all(mine <= KERNEL_BOUND * theirs + 8 * eps for mine, theirs in errors.values())
    return {"outcome": "passed" if kept else "failed", "impl": seen["auto"], "errors": errors}


@torch.no_grad()
def _streamed(mixer: regard.Mixer, x: Tensor) -> Tensor:
    """Outputs of the last three tokens, each by a step of its own behind a state of all before."""
    y, state = mixer.extend(x[:, :-3], mixer.initial_state(len(x), max_len=x.shape[1]), donate=True)
    steps = [y[:, -3:]]
    for token in x[:, -3:].split(1, dim=1):
        y, state = mixer.extend(token, state, donate=True)
        steps.append(y)
    return torch.cat(steps, 1)


def _speed(plan: Plan) -> Iterator[tuple[Job, Key]]:
    yield from ((_machine, ("machine", dtype)) for dtype in DTYPES)
    dtypes = DTYPES[:1] if plan.small else DTYPES[::-1]
    for length, dtype in product(plan.lengths, dtypes):
        for kind in ("forward",) if plan.small else ("forward", "train", "prefill", "decode"):
            for name, impl in product(plan.mixers, ("auto", "plain")):
                if impl == "auto" or "impl" in _options(name):
                    yield _timed, ("mixer", dtype, kind, str(length), name, impl)
        yield from ((_graph, ("graph", dtype, str(length), name)) for name in plan.mixers)
        for kind in ("forward",) if plan.small else ("forward", "train"):
            cores = list(CORES)[:1] if plan.small else CORES
            yield from ((_core, ("core", dtype, kind, str(length), core)) for core in cores)
            yield from (
                (_peers, ("peers", dtype, kind, str(length), pair)) for pair in _pairs(plan)
            )


def _options(name: str) -> dict[str, Any]:
    with torch.device("meta"):
        return dict(regard.build(name, **FACTS).options)


def _machine(plan: Plan, key: Key) -> dict[str, Any]:
    """Rates: a large matrix product, and a copy of 256 MiB, which is read and written."""
    from regard.lab.experiment.speed import MatrixProduct

    rate = MatrixProduct(plan.device, getattr(torch, key[1]))
    a = torch.empty((1 if plan.small else 256) * 2**20, dtype=torch.uint8, device=plan.device)
    b = torch.empty_like(a)
    took = _medians(plan, {"matrix": rate.sample, "copy": lambda: b.copy_(a)})
    return {
        "ms": took,
        "matrix_flops": 1e3 * rate.flops / took["matrix"],
        "copy_bytes": 2e3 * a.numel() / took["copy"],
    }


def _timed(plan: Plan, key: Key) -> dict[str, Any]:
    from regard.lab.experiment.entry import Entry
    from regard.lab.experiment.speed import Setting, measure, obstacle

    _, dtype, kind, length, name, impl = key
    choice = Entry(mixer=name, options={} if impl == "auto" else {"impl": impl})
    setting = Setting(
        kind=kind,  # type: ignore[arg-type]
        length=int(length),
        dtype=dtype,
        device=plan.device,
        seconds=0.01 if plan.small else 0.5,
        **plan.width,
    )
    why = obstacle(choice, setting)
    if why is not None:
        return {"outcome": "does not apply", "sentence": why}
    (row,) = measure([choice], setting)
    return {"causal": row.causal, "flops": row.flops} | row.setting | row.values


@torch.no_grad()
def _graph(plan: Plan, key: Key) -> dict[str, Any]:
    """A decoding step and its projections alone, as they are called and, on CUDA, each replayed as one graph."""
    _, dtype, length, name = key
    room = int(length) + 16
    mixer = regard.build(name, **plan.width, max_len=room)
    if not mixer.capabilities.streaming:
        why = mixer.capabilities.refusals()["streaming"]
        return {"outcome": "does not apply", "sentence": str(why)}
    mixer = mixer.to(plan.device, getattr(torch, dtype)).eval()
    x = torch.randn(1, room, mixer.dim).to(plan.device, getattr(torch, dtype))
    past, new = x[:, : int(length)], x[:, int(length) : int(length) + 1]
    _, state = mixer.extend(past, mixer.initial_state(1, max_len=room), donate=True)

    def again() -> Any:
        """The same tensors each time, in a state that may be donated once more."""
        return tree_map(lambda z: z, state)

    calls: dict[str, Callable[[], Any]] = {
        "step": lambda: mixer.extend(new, again(), donate=True),
        "projections": _projections(mixer, new, state),
    }
    refused = {}
    if plan.device.startswith("cuda"):
        for name, call in list(calls.items()):
            try:
                calls[f"{name} as a graph"] = _replayed(call)
            except RuntimeError as error:
                refused[name] = str(error)[:300]
    return {"ms": _medians(plan, calls), "refused": refused}


def _projections(mixer: regard.Mixer, new: Tensor, state: Any) -> Callable[[], None]:
    """The nn.Linear modules that one step calls, on random inputs of the same shapes."""
    seen: list[tuple[Callable[[Tensor], Tensor], Tensor]] = []
    hooks = [
        m.register_forward_hook(lambda m, args, _: seen.append((m, torch.randn_like(args[0]))))
        for m in mixer.modules()
        if type(m) is torch.nn.Linear
    ]
    mixer.extend(new, state)
    for hook in hooks:
        hook.remove()

    def run() -> None:
        for linear, x in seen:
            linear(x)

    return run


def _replayed(call: Callable[[], Any]) -> Callable[[], None]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def _core(plan: Plan, key: Key) -> dict[str, Any]:
    """Fused softmax by one of torch's kernels, or FlexAttention with a pattern's block mask, on ready q, k, v."""
    _, dtype, kind, length, core = key
    heads, head_dim = plan.width["num_heads"], plan.width["dim"] // plan.width["num_heads"]
    q, k, v = (
        torch.randn(1, heads, int(length), head_dim, device=plan.device)
        .to(getattr(torch, dtype))
        .requires_grad_(kind == "train")
        for _ in "qkv"
    )
    attend = CORES[core](plan, int(length))

    def call() -> None:
        y = attend(q, k, v)
        if kind == "train":
            y.sum().backward()

    return {"ms": _medians(plan, {core: call})[core], "peak_bytes": _peak(plan, call)}


def _fused(kernel: str, causal: bool) -> Callable[[Plan, int], Callable[..., Tensor]]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def make(plan: Plan, length: int) -> Callable[..., Tensor]:
        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            with sdpa_kernel(getattr(SDPBackend, kernel)):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

        return attend

    return make


def _flex(name: str, causal: bool) -> Callable[[Plan, int], Callable[..., Tensor]]:
    """What a user calls: compiled for its length, without the masks' cache and the mixer around it."""

    def make(plan: Plan, length: int) -> Callable[..., Tensor]:
        from torch.nn.attention.flex_attention import flex_attention

        from regard.fast.flex import block_mask
        from regard.functional.patterns import Window

        mixer: Any = regard.build(name, **plan.width, max_len=length)
        mixer = mixer.to(plan.device)
        mask, device = regard.Mask(causal=causal), torch.device(plan.device)
        if name == "local":
            pattern = Window(mixer.window_size, mixer.window_size, mixer.dilation)
        else:
            pattern = mixer._request(length, mask)[0]
        blocks = block_mask(pattern, length, causal=causal, device=device)
        attend: Any = flex_attention
        if plan.device.startswith("cuda"):
            attend = torch.compile(flex_attention, dynamic=False)
        return lambda q, k, v: attend(q, k, v, block_mask=blocks)

    return make


CORES: dict[str, Callable[[Plan, int], Callable[..., Tensor]]] = {
    f"{kernel.lower()} {'causal' if causal else 'bidirectional'}": _fused(kernel, causal)
    for kernel in ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")
    for causal in (True, False)
} | {
    f"flex {name} {'causal' if causal else 'bidirectional'}": _flex(name, causal)
    for name in ("local", "strided", "longformer", "bigbird")
    for causal in (True, False)
}


def _pairs(plan: Plan) -> list[str]:
    from pairs import PAIRS

    return [pair.name for pair in PAIRS if pair.peers and pair.mixer in plan.mixers]


def _peers(plan: Plan, key: Key) -> dict[str, Any]:
    """Ours beside public packages; milliseconds by name, and why a package is absent."""
    from ours import build_ours, given
    from pairs import PAIRS, Case

    _, dtype, kind, length, name = key
    pair = next(pair for pair in PAIRS if pair.name == name)
    case = Case(length=int(length), causal=pair.causal, **plan.width)
    calls: dict[str, Callable[[], None]] = {}
    absent = {}

    def calling(build: Callable[[], torch.nn.Module]) -> Callable[[], None]:
        module = build().to(plan.device, getattr(torch, dtype)).train(kind == "train")
        inputs = [
            z.detach().to(plan.device, getattr(torch, dtype)).requires_grad_(kind == "train")
            for z in given(pair, case)
        ]

        def call() -> None:
            with torch.set_grad_enabled(kind == "train"):
                y = module(*inputs)
            if kind == "train":
                y.sum().backward()

        call()
        return call

    calls["ours"] = calling(lambda: build_ours(pair, case))
    for peer in pair.peers:
        try:
            calls[peer.name] = calling(lambda peer=peer: peer.build(case))  # type: ignore[misc]
        except Exception as error:  # absent, too large, or for a CPU alone
            absent[peer.name] = f"{type(error).__name__}: {error}".partition("\n")[0][:300]
    peaks = {name: _peak(plan, call) for name, call in calls.items()}
    what = {"mixer": pair.mixer, "scope": pair.scope, "causal": pair.causal}
    return what | {"ms": _medians(plan, calls), "peak_bytes": peaks, "absent": absent}


def _medians(plan: Plan, calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Milliseconds, the device's work included; compilation is in an earlier call."""
    from regard.lab.experiment.speed import synchronize

    def waiting(call: Callable[[], Any]) -> Callable[[], None]:
        def timed() -> None:
            call()
            synchronize(plan.device)

        timed()
        return timed

    found = {name: waiting(call) for name, call in calls.items()}
    return medians(found, rounds=2 if plan.small else 20)


def _peak(plan: Plan, call: Callable[[], Any]) -> int | None:
    if not plan.device.startswith("cuda"):
        return None
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


PARTS: dict[str, Callable[[Plan], Iterator[tuple[Job, Key]]]] = {"laws": _laws, "speed": _speed}
