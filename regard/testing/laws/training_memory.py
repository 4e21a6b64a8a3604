"""Bytes that a forward pass keeps for its backward grow at most as the declared memory, from 1,024 to 4,096 tokens.

Parameters and buffers are not counted, and every storage once. Tokens are kept whatever is declared. What is computed again in the backward
is not kept, so that fewer bytes than declared are well; a bare loop over tiles keeps them all, which are T x T.
"""

import math

import torch
from torch.autograd.graph import saved_tensors_hooks

from regard import Form
from regard.core import Mask, Mixer, growth
from regard.testing.laws.complexity import MARGIN
from regard.testing.subject import Blocks, Subject, require

LOW, HIGH = 1024, 4096
SMALL = Form("plain", tile=32, chunk=16, room=1 << 15)  # so that these lengths are many blocks


def law(subject: Subject) -> None:
    forms: list[Form | Blocks] = [SMALL, "own"] if subject.takes_blocks else ["own"]
    for form in forms:
        mixer = subject.make(torch.float32, blocks=form, max_len=HIGH)
        declared = mixer.capabilities.memory
        most = max(1.0, growth(declared, LOW, HIGH)) + MARGIN
        for causal in subject.causalities():
            low, high = (_kept(subject, mixer, causal, length) for length in (LOW, HIGH))
            slope = math.log(high / low) / math.log(HIGH / LOW)
            what = (
                f"{'causal' if causal else 'any order'}, {'plain' if form is SMALL else 'own'} form"
            )
            said = f"{what}: grows as T^{slope:.2f}, declared {declared} (T^{most - MARGIN:.2f})"
            require(slope <= most, said)


def _kept(subject: Subject, mixer: Mixer, causal: bool, length: int) -> int:
    own = {z.untyped_storage().data_ptr() for z in (*mixer.parameters(), *mixer.buffers())}
    x = subject.tokens(1, length, dtype=torch.float32).requires_grad_()
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes()}

    def keep(z: torch.Tensor) -> torch.Tensor:
        storage = z.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage.nbytes()
        return z

    with saved_tensors_hooks(keep, lambda z: z):
        y = mixer(x, mask=Mask(causal=causal))
    require(y.requires_grad, "no gradient reaches the output")
    return sum(storages.values())
