"""What autograd keeps of a call for its backward."""

from collections.abc import Callable

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


def kept_bytes(call: Callable[[], object]) -> int:
    """Each storage once."""
    found = {}

    def keep(z: Tensor) -> Tensor:
        storage = z.untyped_storage()
        found[storage._cdata] = storage
        return z

    with saved_tensors_hooks(keep, lambda z: z):
        call()
    assert found, "nothing wants a gradient"
    return sum(storage.nbytes() for storage in found.values())
