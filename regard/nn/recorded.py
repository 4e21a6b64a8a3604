"""The calls of a model's mixers in one forward."""

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import get_ident
from typing import Any, NamedTuple

from torch import Tensor, nn

from regard.core import OPEN, Mask, Mixer


class Call(NamedTuple):
    """One call of a mixer: `time` counts the calls of the same mixer, from 0."""

    path: str
    time: int
    mixer: Mixer
    x: Tensor
    context: Tensor | None
    mask: Mask
    y: Tensor

    def attention_map(self) -> Tensor:
        return self.mixer.attention_map(self.x, context=self.context, mask=self.mask)


@contextmanager
def recorded(model: nn.Module, only: Collection[nn.Module] | None = None) -> Iterator[list[Call]]:
    """While open, the calls of the model's mixers in this thread enter the list; those of mixers inside mixers do not, unless they are among `only`."""
    calls = []
    ours = get_ident()
    times: Counter[str] = Counter()

    def note(path: str, mixer: Mixer, args: tuple, kwargs: dict[str, Any], y: Tensor) -> None:
        if get_ident() != ours:  # a call of another thread
            return
        x = args[0] if args else kwargs["x"]
        mask = kwargs.get("mask", OPEN)
        calls.append(Call(path, times[path], mixer, x, kwargs.get("context"), mask, y))
        times[path] += 1

    with ExitStack() as hooks:
        found = ((path, m) for path, m in model.named_modules() if m in (only or ()))
        for path, mixer in outermost(model) if only is None else found:
            hooks.enter_context(mixer.register_forward_hook(partial(note, path), with_kwargs=True))
        yield calls


def outermost(model: nn.Module) -> Iterator[tuple[str, Mixer]]:
    """Mixers that are in no other mixer, with their names; one that is shared comes once, with its first."""
    inside = set[nn.Module]()
    for path, module in model.named_modules():
        if isinstance(module, Mixer) and module not in inside:
            inside.update(module.modules())
            yield path, module
