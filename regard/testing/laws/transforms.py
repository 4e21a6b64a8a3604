"""torch.func's grad, vmap and jacrev take the mixer as any function, and give what autograd gives."""

import warnings

import torch
from torch import Tensor
from torch.func import functional_call, grad, jacrev, vmap

from regard.core import Mask
from regard.testing.subject import Subject, T, require_close

ROWS = 3


def law(subject: Subject) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "There is a performance drop"
        )  # under vmap; not judged here
        for causal in subject.causalities():
            _law(subject, Mask(causal=causal), "causal" if causal else "plain")


def _law(subject: Subject, mask: Mask, label: str) -> None:
    mixer = subject.make()
    parameters = {name: z.detach() for name, z in mixer.named_parameters()}
    rows = [subject.tokens(1, T, seed=seed) for seed in range(ROWS)]
    weight = subject.tokens(1, T, seed=ROWS)

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return (functional_call(mixer, parameters, (x,), {"mask": mask}) * weight).sum()

    own = [x.clone().requires_grad_() for x in rows]
    leaves = [[*mixer.parameters(), x] for x in own]
    autograd = [
        torch.autograd.grad(
            loss(dict(mixer.named_parameters()), x), z, allow_unused=True, materialize_grads=True
        )
        for x, z in zip(own, leaves, strict=True)
    ]
    each = vmap(grad(loss, argnums=(0, 1)), in_dims=(None, 0))(parameters, torch.stack(rows))
    found = [*each[0].values(), each[1]]
    names = [*parameters, "x"]
    for name, ours, *theirs in zip(names, found, *autograd, strict=True):
        what = f"{label}: vmap(grad) of {name}"
        require_close(ours, torch.stack(theirs), 1e-10, what)
    y = vmap(lambda x: mixer(x, mask=mask))(torch.stack(rows))
    require_close(y, torch.stack([mixer(x, mask=mask) for x in rows]), 1e-10, f"{label}: vmap")
    two = jacrev(lambda x: mixer(x, mask=mask)[0, -1, :2])(rows[0])
    x = own[0]
    last = mixer(x, mask=mask)[0, -1, :2]
    rows_of = [torch.autograd.grad(z, x, retain_graph=True)[0] for z in last]
    require_close(two, torch.stack(rows_of), 1e-10, f"{label}: jacrev")
