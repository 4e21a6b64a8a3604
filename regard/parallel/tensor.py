"""Tensor parallel: every process holds a part of the heads, and of the width of feed-forward layers."""

from typing import Any

from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel

from regard.core import UnsupportedError
from regard.nn.feed_forward import FeedForward
from regard.nn.heads import Heads
from regard.nn.recorded import outermost


def independent_heads(mixer: Any) -> Heads | None:
    """The heads of a mixer that reads tokens through them alone, and in which a part of them is as good as all."""
    found = [part for part in mixer.modules() if isinstance(part, Heads)]
    apart = mixer.beside_heads is None and found == [getattr(mixer, "heads", None)]
    return found[0] if apart and found[0].alike else None


def tensor_plan(model: nn.Module) -> dict[str, ParallelStyle]:
    """Returns the plan for `torch.distributed.tensor.parallel.parallelize_module`: first projections column-wise, last ones row-wise.

    What is in no mixer and no feed-forward layer stays whole on every process. Numbers of heads, and of key/value heads, must be multiples of the number of
    processes: a forward raises ShapeError where they are not. So must widths of feed-forward layers, where the error is torch's.

    Raises UnsupportedError for a mixer whose heads depend on each other, or share parameters.
    """
    for _, mixer in outermost(model):
        heads = independent_heads(mixer)
        own = () if heads is None else (heads.query, heads.key, heads.value, heads.out)
        known = {id(z) for part in own if part is not None for z in part.parameters()}
        shared = [name for name, z in mixer.named_parameters() if id(z) not in known]
        if heads is None or shared:
            why = f"its heads share {shared[0]}" if heads else "its heads are not independent"
            raise UnsupportedError(
                f"{mixer.name} does not support tensor parallel: {why}. Leave this layer whole, or shard it with FSDP2."
            )
    return {
        f"{name}.{child}".lstrip("."): RowwiseParallel() if child == "out" else ColwiseParallel()
        for name, module in model.named_modules()
        if isinstance(module, Heads | FeedForward)
        for child, part in module.named_children()
        if isinstance(part, nn.Linear)
    }
