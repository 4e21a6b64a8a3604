"""AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101), with a warm-up and then a cosine (arXiv 1608.03983) or a line."""

import math

from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from regard.lab.train.config import Schedule, TrainConfig


def make_optimizer(model: nn.Module, config: TrainConfig) -> AdamW:
    """Matrices (two dimensions or more) decay; biases, gains and single numbers do not."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if (p.dim() >= 2) is matrices], "weight_decay": decay}
        for matrices, decay in ((True, config.weight_decay), (False, 0.0))
    ]
    some = [group for group in groups if group["params"]]
    return AdamW(some, lr=config.lr, betas=config.betas, fused=True)


def make_schedule(optimizer: AdamW, warmup: float, steps: int, shape: Schedule) -> LambdaLR:
    rise = round(warmup * steps)
    share = warmup_linear if shape == "linear" else warmup_cosine
    return LambdaLR(optimizer, lambda step: share(step, rise, steps))


LAST = 0.02  # share of the top rate at the end of a linear schedule


def warmup_linear(step: int, warmup: int, steps: int) -> float:
    """Share of the top rate used by step 0, 1, ...: rises to 1 over `warmup` steps, falls in a line to LAST at `steps`."""
    if step < warmup:
        return (step + 1) / warmup
    return 1 - (1 - LAST) * min(1.0, (step - warmup + 1) / max(1, steps - warmup))


def warmup_cosine(step: int, warmup: int, steps: int) -> float:
    """Share of the top rate used by step 0, 1, ...: rises to 1 over `warmup` steps, falls to 0 at `steps`."""
    if step < warmup:
        return (step + 1) / (warmup + 1)
    along = min(1.0, (step - warmup) / max(1, steps - warmup))
    return 0.5 * (1 + math.cos(math.pi * along))
