"""One-token decoding steps: python benchmarks/decoding.py [--only linear softmax] [--contexts 4096 16384] [--json]

Width 512, 8 heads, batch 1, CPU. "projections": the mixer's own channel projections alone, on one token; a state of constant size
aims at 1.3 times them at any context. "least": the operators that no step can do without, alone (least_steps.py). A state
has taken one single token after the past, which makes room where there was none. "grown": a step when room was not reserved, the copies of doubling spread over the
steps that they serve; 1.1 times the step with reserved room is the aim. The cache of transformers (concatenating) is
timed beside softmax where that package is installed.
"""

import sys
from collections.abc import Callable
from typing import Annotated, Any

import torch
import tyro
from least_steps import least_step
from program import run, show
from rounds import medians
from torch import Tensor, nn
from tyro.conf import FlagCreatePairsOff

import regard

DIM, HEADS, STEPS = 512, 8, 8
MOST = 4 * 2**30  # bytes of parameters
CONSTANT_AIM, GROWN_AIM = 1.3, 1.1


@torch.no_grad()
def main(
    only: tuple[str, ...] = (),
    contexts: tuple[int, ...] = (4096, 16384),
    rounds: int = 15,
    json_: Annotated[FlagCreatePairsOff[bool], tyro.conf.arg(name="json")] = False,
) -> int:
    """Time one-token steps of the mixers that stream.

    Args:
        only: names of mixers; all that stream by default
        contexts: tokens already in the state
        rounds: of every entry, eight steps each
        json_: print data instead of a table
    """
    mixers = [regard.MIXERS[name].name for name in only or regard.MIXERS.names()]
    rows = [row for context in contexts for name in mixers if (row := _row(name, context, rounds))]
    return show(rows, as_json=json_)


def _row(name: str, context: int, rounds: int) -> dict[str, Any] | None:
    torch.manual_seed(0)
    room = context + STEPS + 1
    facts: dict[str, Any] = {"dim": DIM, "num_heads": HEADS, "max_len": room}
    with torch.device("meta"):
        size = sum(p.numel() * p.element_size() for p in regard.build(name, **facts).parameters())
    if size > MOST:
        print(
            f"{name} is left out at {context:,}: its parameters take {size / 2**30:.0f} GiB",
            file=sys.stderr,
        )
        return None
    mixer = regard.build(name, **facts).eval()
    if not mixer.capabilities.streaming:
        return None
    past, new = torch.randn(1, context, DIM), torch.randn(1, 1, DIM)
    reserved = mixer.initial_state(1, max_len=room)
    for part in (past[:, :-1], past[:, -1:]):
        _, reserved = mixer.extend(part, reserved, donate=True)
    constant = "T" not in (mixer.capabilities.state or "").split()
    calls = {
        "step": _steps(mixer, new, reserved),
        "projections": _projections(mixer, new, reserved),
    }
    least = least_step(name, new, HEADS, context)
    if least is not None:
        calls["least"] = _repeated(least)
    if name == "softmax":
        calls |= _caches(past, new)
    found = {call: ms / STEPS for call, ms in medians(calls, rounds).items()}
    row = {
        "mixer": name,
        "context": context,
        "state": mixer.capabilities.state,
        "step ms": found["step"],
        "projections ms": found["projections"],
        "least ms": found.get("least"),
        "of projections": found["step"] / found["projections"],
        "aim": CONSTANT_AIM if constant else None,
        "grown, of reserved": None,
        "transformers' cache ms": found.get("transformers"),
    }
    if not constant:
        row["grown, of reserved"] = _growth(mixer, past, new, found["step"], rounds)
    return row


def _steps(mixer: regard.Mixer, new: Tensor, state: Any) -> Callable[[], None]:
    """STEPS tokens after the same past; the state's storage is ours, and rows beyond the past are written over."""

    def run() -> None:
        now = state
        for _ in range(STEPS):
            _, now = mixer.extend(new, now, donate=True)

    return run


def _repeated(step: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(STEPS):
            step()

    return run


def _projections(mixer: regard.Mixer, new: Tensor, state: Any) -> Callable[[], None]:
    """The nn.Linear modules that one step calls, on inputs of the shapes that they get."""
    seen: list[tuple[nn.Linear, Tensor]] = []

    def note(linear: nn.Linear, args: tuple[Tensor], _: Tensor) -> None:
        seen.append((linear, torch.randn_like(args[0])))

    hooks = [m.register_forward_hook(note) for m in mixer.modules() if type(m) is nn.Linear]
    mixer.extend(new, state)
    for hook in hooks:
        hook.remove()

    def run() -> None:
        for _ in range(STEPS):
            for linear, x in seen:
                linear(x)

    return run


def _growth(mixer: regard.Mixer, past: Tensor, new: Tensor, step_ms: float, rounds: int) -> float:
    """A step without reserved room over one with: the doubling's extra time is spread over `past` tokens."""
    context = past.shape[1]
    full: list[Any] = []

    def fill() -> None:
        _, state = mixer.extend(past, mixer.initial_state(1), donate=True)
        full[:] = [state]

    def grow() -> None:
        mixer.extend(new, full[0], donate=True)

    fill()
    grow_ms = medians({"grow": grow}, max(3, rounds // 3))["grow"]
    return (step_ms + max(0.0, grow_ms - step_ms) / context) / step_ms


def _caches(past: Tensor, new: Tensor) -> dict[str, Callable[[], None]]:
    try:
        from transformers import DynamicCache, LlamaConfig
        from transformers.models.llama.modeling_llama import LlamaAttention
    except ImportError:
        return {}
    config = LlamaConfig(
        hidden_size=DIM, num_attention_heads=HEADS, num_key_value_heads=HEADS, num_hidden_layers=1
    )
    config._attn_implementation = "sdpa"
    layer = LlamaAttention(config, layer_idx=0).eval()
    rotation = torch.ones(1, 1, DIM // HEADS), torch.zeros(1, 1, DIM // HEADS)
    heads = past.reshape(1, past.shape[1], HEADS, DIM // HEADS).transpose(1, 2).contiguous()

    def run() -> None:
        cache = DynamicCache()
        cache.update(heads, heads, 0)
        for _ in range(STEPS):
            layer(new, position_embeddings=rotation, attention_mask=None, past_key_values=cache)

    return {"transformers": run}


if __name__ == "__main__":
    run(main)
