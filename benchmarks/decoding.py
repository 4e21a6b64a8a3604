"""One-token decoding steps: python benchmarks/decoding.py [--only linear softmax] [--contexts 4096 16384] [--json]

Width 512, 8 heads, batch 1, CPU.
projections: the mixer's own channel projections alone, on one token; a state of constant size aims at 1.3 times them.
least: the operators that no step can do without, on ready tensors: four projections and the fewest operators that move the
state and read it. Weights are plain tensors, since calling nn.Linear takes a third more; positions, checks and lengths are left out.
grown: a step without reserved room, the copies of doubling spread over the steps that they serve; the aim is 1.1.
The cache of transformers, which concatenates, is timed beside softmax where that package is installed.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from measuring import Json, medians, run, show
from torch import Tensor, nn

import regard

DIM, HEADS, STEPS = 512, 8, 8
MOST = 4 * 2**30  # bytes of parameters of a mixer that is timed
CONSTANT_AIM = 1.3

Mix = Callable[[Tensor, Tensor, Tensor], Tensor]  # q, k, v [H 1 K] -> [H 1 K]


@torch.no_grad()
def main(
    only: tuple[str, ...] = (),
    contexts: tuple[int, ...] = (4096, 16384),
    rounds: int = 15,
    json_: Json = False,
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
        "projections": projections(mixer, new, reserved),
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
    """STEPS tokens after the same past. The state is donated: rows beyond the past are written over each time."""
    again = not_given_away(state)

    def run() -> None:
        now = again()
        for _ in range(STEPS):
            _, now = mixer.extend(new, now, donate=True)

    return run


def not_given_away(state: Any) -> Callable[[], Any]:
    """The same tensors each time, free to be donated once more."""

    def again() -> Any:
        state.origin.given_away = False
        return state

    return again


def _repeated(step: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(STEPS):
            step()

    return run


def projections(
    mixer: regard.Mixer, new: Tensor, state: Any, steps: int = STEPS
) -> Callable[[], None]:
    """The nn.Linear modules that one step calls, on random inputs of the same shapes."""
    seen: list[tuple[nn.Linear, Tensor]] = []

    def note(linear: nn.Linear, args: tuple[Tensor], _: Tensor) -> None:
        seen.append((linear, torch.randn_like(args[0])))

    hooks = [m.register_forward_hook(note) for m in mixer.modules() if type(m) is nn.Linear]
    mixer.extend(new, state)
    for hook in hooks:
        hook.remove()

    def run() -> None:
        for _ in range(steps):
            for linear, x in seen:
                linear(x)

    return run


def _growth(mixer: regard.Mixer, past: Tensor, new: Tensor, step_ms: float, rounds: int) -> float:
    """Time of a step without reserved room over one with it; the doubling's extra time is spread over `past` tokens."""
    context = past.shape[1]
    full: list[Callable[[], Any]] = []

    def fill() -> None:
        _, state = mixer.extend(past, mixer.initial_state(1), donate=True)
        full[:] = [not_given_away(state)]

    def grow() -> None:
        mixer.extend(new, full[0](), donate=True)

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


def least_step(name: str, x: Tensor, num_heads: int, context: int) -> Callable[[], None] | None:
    """The least operators of one step with default options on x [1 1 D]; None where they are not written down."""
    if name not in LEAST:
        return None
    D = x.shape[-1]
    mix = LEAST[name](num_heads, D // num_heads, context)
    query, key, value, out = (torch.randn(D, D) * D**-0.5 for _ in range(4))

    def run() -> None:
        q, k, v = (F.linear(x, w).view(num_heads, 1, -1) for w in (query, key, value))
        F.linear(mix(q, k, v).view(1, 1, D), out)

    return run


def _least_linear(H: int, K: int, context: int) -> Mix:
    S, z = torch.ones(H, K, K), torch.ones(H, 1, K)

    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k = F.elu(q).add_(1), F.elu(k).add_(1)
        S.addcmul_(k.mT, v)
        z.add_(k)
        return torch.bmm(q, S).div_(torch.bmm(q, z.mT))

    return mix


def _least_efficient(H: int, K: int, context: int) -> Mix:
    S, z, m = torch.ones(H, K, K), torch.ones(H, 1, K), torch.zeros(H, 1, K)

    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        top = torch.maximum(m, k)
        e, shrink = (k - top).exp_(), (m - top).exp_()
        torch.addcmul(e, z, shrink, out=z)
        S.mul_(shrink.mT).addcmul_(e.mT, v)
        return torch.bmm(q.softmax(-1).div_(z), S)

    return mix


def _least_rfa(H: int, K: int, context: int, M: int = 64) -> Mix:
    S, z, w = torch.ones(H, 2 * M, K), torch.ones(H, 1, 2 * M), torch.randn(H, K, M)

    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        both = torch.cat([q, k], dim=1)
        wx = torch.bmm(both.div_(both.norm(dim=-1, keepdim=True)), w)
        q, k = torch.cat([wx.sin(), wx.cos()], dim=-1).split(1, dim=1)
        S.addcmul_(k.mT, v)
        z.add_(k)
        return torch.bmm(q, S).div_(torch.bmm(q, z.mT))

    return mix


def _least_performer(H: int, K: int, context: int, M: int = 256) -> Mix:
    S, z, w, c = torch.ones(H, M, K), torch.ones(H, 1, M), torch.randn(M, K), torch.ones(H, 1, 1)

    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        wx = F.linear(torch.cat([q, k], dim=1), w)
        half = torch.linalg.vecdot(k, k)[..., None]
        torch.maximum(c, wx[:, 1:].amax(-1, keepdim=True) - half, out=c)
        q = torch.softmax(wx[:, :1], dim=-1)  # its factor cancels
        k = (wx[:, 1:] - (half + c)).exp_()
        S.addcmul_(k.mT, v)  # a maximum that does not move
        z.add_(k)
        return torch.bmm(q, S).div_(torch.bmm(q, z.mT))

    return mix


def _least_softmax(H: int, K: int, context: int) -> Mix:
    keys, values = torch.randn(2, 1, H, context + 1, K)

    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys[0, :, -1:], values[0, :, -1:] = k, v
        return F.scaled_dot_product_attention(q[None], keys, values)

    return mix


LEAST: dict[str, Callable[[int, int, int], Mix]] = {
    "efficient": _least_efficient,
    "linear": _least_linear,
    "local": lambda H, K, context: _least_softmax(H, K, min(context, 128)),
    "performer": _least_performer,
    "rfa": _least_rfa,
    "softmax": _least_softmax,
}


if __name__ == "__main__":
    run(main)
