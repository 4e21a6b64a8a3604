"""One long sequence over several processes: each holds its part of 65,536 bytes, and half of the activations.

    torchrun --nproc-per-node 2 examples/long_sequence.py

The text is the standard library's source. Prints losses, seconds, and the bytes that autograd keeps in one forward, parameters left
out. Without torchrun it is one process, which holds all.
"""

import os
import sysconfig
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F

from regard.models import LanguageModelConfig
from regard.parallel import Ranks, sequence

TOKENS, STEPS = (512, 1) if "REGARD_SMALL" in os.environ else (65536, 3)
MIXER = os.environ.get("MIXER", "local")


def text(size: int) -> torch.Tensor:
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    raw = b"".join(file.read_bytes() for file in files)[:size]
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).long()


if "RANK" in os.environ:
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    torch.set_num_threads(1)
else:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(0)
ranks = Ranks()
sizes = {"dim": 64, "num_heads": 4, "num_layers": 2, "max_len": TOKENS}
model = LanguageModelConfig(mixer=MIXER, vocab_size=256, position="sinusoidal", **sizes).build()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
own = {z.untyped_storage().data_ptr() for z in model.parameters()}
kept: dict[int, int] = {}


def note(z: torch.Tensor) -> torch.Tensor:
    storage = z.untyped_storage()
    if storage.data_ptr() not in own:
        kept[storage.data_ptr()] = storage.nbytes()
    return z


x = text(STEPS * TOKENS + 1)
start, end = (TOKENS * rank // ranks.size for rank in (ranks.rank, ranks.rank + 1))
with sequence(model):
    for step in range(STEPS):
        began, at = time.perf_counter(), step * TOKENS
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(note, lambda z: z):
            y = model(x[None, at + start : at + end])
            targets = x[at + start + 1 : at + end + 1]
            loss = F.cross_entropy(y[0], targets, reduction="sum") / TOKENS
        loss.backward()
        gradients = [z.grad for z in model.parameters() if z.grad is not None]
        for z in (total := loss.detach().clone(), *gradients):
            dist.all_reduce(z)
        optimizer.step()
        optimizer.zero_grad()
        seconds, size = time.perf_counter() - began, sum(kept.values()) / 2**20
        lines = ranks.facts(
            f"process {ranks.rank}: loss {total:.5f}, {seconds:.1f} s, {size:,.0f} MiB kept"
        )
        if ranks.rank == 0:
            print("\n".join(lines))
dist.destroy_process_group()
