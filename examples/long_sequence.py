"""A byte model trained on one long sequence over several processes: losses, seconds, and the bytes that the backward needs.

    torchrun --nproc-per-node 2 examples/long_sequence.py --mixer local --tokens 65536 --steps 3

The text is the standard library's source. Activations are the storages that autograd saves in one forward, parameters left out.
"""

import argparse
import json
import resource
import sysconfig
import time
from pathlib import Path

import torch
import torch.distributed as dist

from regard.core import Mask
from regard.models import LanguageModelConfig
from regard.nn.recorded import outermost
from regard.parallel import Ranks, sequence, way_of


def text(size: int) -> torch.Tensor:
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    raw = b"".join(file.read_bytes() for file in files)[:size]
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).long()


def main(mixer: str, tokens: int, steps: int, dim: int, layers: int) -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ranks = Ranks()
    sizes = {"dim": dim, "num_heads": 4, "num_layers": layers, "max_len": tokens}
    model = LanguageModelConfig(mixer=mixer, vocab_size=256, position="sinusoidal", **sizes).build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    own = {z.untyped_storage().data_ptr() for z in model.parameters()}
    x = text(steps * tokens + 1)
    start, end = (tokens * rank // ranks.size for rank in (ranks.rank, ranks.rank + 1))
    found: dict = {"losses": [], "seconds": []}
    with sequence(model):
        for step in range(steps):
            began, saved = time.perf_counter(), dict[int, int]()

            def note(z: torch.Tensor, saved=saved) -> torch.Tensor:
                storage = z.untyped_storage()
                if storage.data_ptr() not in own:
                    saved[storage.data_ptr()] = storage.nbytes()
                return z

            at = step * tokens
            with torch.autograd.graph.saved_tensors_hooks(note, lambda z: z):
                y = model(x[None, at + start : at + end])
                targets = x[at + start + 1 : at + end + 1]
                loss = torch.nn.functional.cross_entropy(y[0], targets, reduction="sum") / tokens
            loss.backward()
            numbers = [loss.detach(), *(z.grad for z in model.parameters() if z.grad is not None)]
            for z in numbers:
                dist.all_reduce(z)
            optimizer.step()
            optimizer.zero_grad()
            found["losses"].append(round(float(numbers[0]), 5))
            found["seconds"].append(round(time.perf_counter() - began, 1))
            found["activations"] = f"{sum(saved.values()) / 2**20:.0f} MiB"
    found["peak"] = f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:.0f} MiB"
    way = way_of(next(outermost(model))[1], Mask(causal=True), size=ranks.size)
    every = ranks.facts({"mixer": mixer, "way": way, "tokens": end - start} | found)
    if ranks.rank == 0:
        for one in every:
            print(json.dumps(one))
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mixer", default="local")
    for name, value in {"tokens": 65536, "steps": 3, "dim": 64, "layers": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    main(**vars(parser.parse_args()))
