"""torch.compile captures the whole graph, and torch.export exports it, outputs and gradients, in the blocks that users get."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.core import Mask, Mixer
from regard.testing.subject import B, Subject, T, gradients, require_close


def law(subject: Subject) -> None:
    mixer = subject.make(blocks="own")
    x = subject.tokens(B, T)
    valid = torch.arange(T) < torch.tensor([[T], [T - 4]])
    masks = [Mask(causal=causal) for causal in subject.causalities()]
    if subject.can.padding:  # a graph with padding holds the one without, but for fast paths
        masks = [masks[0], replace(masks[-1], valid=valid)]
    for mask in masks[-1:] if subject.variant else masks:
        torch.compiler.reset()
        made: dict[str, Any] = {
            "compiled": torch.compile(mixer, fullgraph=True, backend="eager"),
            "exported": torch.export.export(mixer, (x,), {"mask": mask}).module(),
        }
        if mask is masks[-1] and not subject.variant:
            strictly = torch.export.export(mixer, (x,), {"mask": mask}, strict=True)
            made["exported, strict=True"] = strictly.module()
        expected = _results(mixer, mixer, x, mask)
        for how, module in made.items():
            found = _results(module, mixer, x, mask)
            order, padded = ", causal" * mask.causal, "" if mask.valid is None else ", padded"
            for name, own in expected.items():
                require_close(found[name], own, 1e-10, f"{how}{order}{padded}: {name}")


def _results(module: nn.Module, mixer: Mixer, x: Tensor, mask: Mask) -> dict[str, Tensor]:
    """The output, and the gradients of x and the mixer's parameters; exported programs have copies of those they use."""
    x = x.clone().requires_grad_()
    y = module(x, mask=mask)
    leaves = {"x": x}
    leaves |= {name.removeprefix("_orig_mod."): z for name, z in module.named_parameters()}
    found = dict(zip(leaves, gradients(y, [*leaves.values()]), strict=True))
    absent = {name: torch.zeros_like(z) for name, z in mixer.named_parameters()}
    of = {f"gradient of {name}": z for name, z in (absent | found).items()}
    return {"output": y, **of}
