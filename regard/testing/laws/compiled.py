"""torch.compile captures the whole graph, outputs and gradients, in the blocks that users get."""

from dataclasses import replace
from typing import cast

import torch
from torch import nn

from regard.core import Mask
from regard.testing.subject import B, Subject, T, require_results


def law(subject: Subject) -> None:
    mixer = subject.make(blocks="own")
    x = subject.tokens(B, T)
    valid = torch.arange(T) < torch.tensor([[T], [T - 4]])
    masks = [Mask(causal=causal) for causal in subject.causalities()]
    if subject.can.padding:  # a graph with padding holds the one without, but for fast paths
        masks = [masks[0], replace(masks[-1], valid=valid)]
    for mask in masks:
        torch.compiler.reset()
        compiled = torch.compile(mixer, fullgraph=True, backend="eager")
        require_results(cast(nn.Module, compiled), mixer, x, mask, "compiled")
