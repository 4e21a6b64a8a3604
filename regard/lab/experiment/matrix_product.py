"""The machine's matrix-product rate: the limit beside which a mechanism's own rate is read."""

import time
from collections.abc import Callable

import torch

SIDE = {"cpu": 2048, "cuda": 8192}


class MatrixProduct:
    """One product of two square matrices into a ready output; sampled in the rounds that it is compared with."""

    def __init__(
        self,
        device: str,
        dtype: torch.dtype,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self.device, self.clock = torch.device(device), clock
        side = SIDE.get(self.device.type, 2048)
        self.flops = 2 * side**3
        self.a, self.b = (
            torch.randn(side, side, device=self.device).to(dtype).mul_(side**-0.5) for _ in "ab"
        )
        self.out = torch.empty_like(self.a)

    def sample(self) -> float:
        """Seconds of one product."""
        synchronize(self.device)
        began = self.clock()
        torch.mm(self.a, self.b, out=self.out)
        synchronize(self.device)
        return self.clock() - began


def synchronize(device: str | torch.device) -> None:
    """Wait for what the device still does; a CPU is never behind."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
