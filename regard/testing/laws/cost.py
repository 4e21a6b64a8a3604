"""Counted operations, live bytes and bytes kept for the backward grow as declared."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import lru_cache, partial
from math import log, sqrt

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.module import register_module_forward_hook

from regard import Form
from regard.core import Mixer, growth
from regard.testing.counting import Counted, count
from regard.testing.subject import Blocks, LawError, Request, Subject, require, seeded

RANGES = (
    (4096, 16384),
    (4096, 65536),
)  # the second where a cost does not yet show its growth in the first
POSITIONS = 1024  # the fewest features of a layer that maps positions: it has max_len of them
DEAR = 1.6  # growth of time from which values are not computed; the meta device is slow at many small steps
MARGIN = 0.1  # of the log-log slope
EXACT = 0.02  # of the cost between, where a sum of terms is declared
PRESENT = 0.1  # the least share of the fastest term at the longest
KEPT_RANGE = 1024, 4096
SMALL = Form("plain", tile=32, chunk=16, room=1 << 15)  # so that these lengths are many blocks


def complexity(subject: Subject) -> None:
    """Counted operations and live bytes grow as declared from 4,096 to 16,384 tokens, or else to 65,536.

    Projections of single tokens grow as T everywhere; they are taken out, so that what is declared is not hidden by them.
    """
    for low, high in RANGES:
        try:
            return _grows_as_declared(subject, low, high)
        except LawError:
            if high == RANGES[-1][1]:
                raise


def _grows_as_declared(subject: Subject, low: int, high: int) -> None:
    """The slope over the whole range, or over its upper half, where slower terms have faded; or a declared sum."""
    middle = round(sqrt(low * high))
    options = dict(subject.options)
    if not subject.can.any_length:
        options["max_len"] = high
    if subject.takes_blocks:  # what is declared is the plain form's growth
        options["impl"] = "plain"
    device = "cpu" if growth(subject.can.time, low, high) < DEAR else "meta"
    with torch.device(device):
        mixer = subject.cls(**options).eval()
    can = mixer.capabilities  # of this length: a cost may depend on max_len
    for order in subject.orders():
        counted = lru_cache(partial(_counted, mixer, device, subject.dim, order))
        for what, declared in (("flops", can.time), ("peak_bytes", can.memory)):

            def cost(length: int, counted=counted, what: str = what) -> int:
                return getattr(counted(length), what)

            expected = growth(declared, low, high)
            near = any(abs(_slope(cost, n, high) - expected) <= MARGIN for n in (low, middle))
            grows = near or _is_sum_of_terms(declared, cost, low, middle, high)
            slope = f"T^{_slope(cost, low, high):.2f}, declared {declared} (T^{expected:.2f})"
            require(grows, f"{what}, {order.label}: grows as {slope}")


def _slope(cost: Callable[[int], int], low: int, high: int) -> float:
    return log(cost(high) / cost(low)) / log(high / low)


def _is_sum_of_terms(
    declared: str, cost: Callable[[int], int], low: int, middle: int, high: int
) -> bool:
    """True if a T^p + b T^q, p and q the slowest and the fastest term's, foretells the cost half way.

    Of a declared sum the fastest term need not rule yet; but it must be there.
    """
    slopes = [growth(term, low, high) for term in declared.split("+")]
    slow = min(slopes)
    fast = max(slopes)
    if fast - slow < 2 * MARGIN:
        return False
    powers = torch.tensor([[T**slow, T**fast] for T in (low, high)], dtype=torch.float64)
    costs = torch.tensor([cost(low), cost(high)], dtype=torch.float64)
    a, b = torch.linalg.solve(powers, costs).tolist()
    foretold = a * middle**slow + b * middle**fast
    present = b * high**fast >= PRESENT * cost(high)
    return a >= 0 and present and abs(foretold / cost(middle) - 1) <= EXACT


def _counted(mixer: Mixer, device: str, dim: int, order: Request, length: int) -> Counted:
    """The cost of one forward without the operations of linear layers that map each token by itself.

    It runs in one thread: room for temporaries is held for each, and what is declared is not of the machine.
    """
    spent = []

    def note(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if isinstance(layer, nn.Linear) and max(layer.in_features, layer.out_features) < POSITIONS:
            spent.append(2 * inputs[0].numel() * layer.out_features)

    x = torch.randn(1, length, dim, generator=seeded(0)).to(device)
    with torch.no_grad(), ExitStack() as end, register_module_forward_hook(note):
        end.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)
        counted = count(lambda: order(mixer, x))
    mixing = counted.flops - sum(spent)
    return counted._replace(flops=mixing or counted.flops)


def training_memory(subject: Subject) -> None:
    """Bytes that a forward pass keeps for its backward grow at most as the declared memory, from 1,024 to 4,096 tokens.

    Parameters and buffers are not counted, and every storage once. Tokens are kept whatever is declared. What is computed again in the backward
    is not kept, so that fewer bytes than declared are well; a bare loop over tiles keeps them all, which are T x T.
    """
    low, high = KEPT_RANGE
    forms: list[Form | Blocks] = [SMALL, "own"] if subject.takes_blocks else ["own"]
    for form in forms:
        mixer = subject.make(torch.float32, blocks=form, max_len=high)
        declared = mixer.capabilities.memory
        most = max(1.0, growth(declared, low, high))
        for order in subject.orders():
            slope = _slope(partial(_kept, subject, mixer, order), low, high)
            what = f"{order.label}, {'plain' if form is SMALL else 'own'} form"
            require(
                slope <= most + MARGIN,
                f"{what}: grows as T^{slope:.2f}, declared {declared} (T^{most:.2f})",
            )


def _kept(subject: Subject, mixer: Mixer, order: Request, length: int) -> int:
    own = {z.untyped_storage().data_ptr() for z in (*mixer.parameters(), *mixer.buffers())}
    x = subject.tokens(1, length, dtype=torch.float32).requires_grad_()
    storages = {}

    def keep(z: Tensor) -> Tensor:
        storage = z.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage.nbytes()
        return z

    keep(x)
    with saved_tensors_hooks(keep, lambda z: z):
        y = order(mixer, x)
    require(y.requires_grad, "no gradient reaches the output")
    return sum(storages.values())
