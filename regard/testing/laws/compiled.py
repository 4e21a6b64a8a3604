"""torch.compile captures the whole graph, and torch.export exports it."""

import torch

from regard.core import Mask
from regard.testing.subject import B, Subject, T, require_close


def law(subject: Subject) -> None:
    mixer = subject.make()
    x = subject.tokens(B, T)
    valid = torch.arange(T) < torch.tensor([[T], [T - 4]])
    for causal in subject.causalities():
        for mask in (
            Mask(causal=causal),
            Mask(causal=causal, valid=valid if subject.can.padding else None),
        ):
            torch.compiler.reset()
            compiled = torch.compile(mixer, fullgraph=True, backend="eager")
            require_close(compiled(x, mask=mask), mixer(x, mask=mask), 1e-10, "compiled")
        exported = torch.export.export(mixer, (x,), {"mask": mask})
        require_close(exported.module()(x, mask=mask), mixer(x, mask=mask), 1e-10, "exported")
