"""Ranks as threads of one process: what they send is put into queues."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from typing import Any

import torch
from torch import Tensor

SECONDS = 30  # a rank that waits longer waits for nobody


class Network:
    def __init__(self, size: int):
        self.size = size
        self.queues = {(a, b): Queue() for a in range(size) for b in range(size)}
        self.meeting = threading.Barrier(size, timeout=SECONDS)
        self.slots: list[Any] = [None] * size


class Simulated:
    def __init__(self, rank: int, network: Network):
        self.rank, self.size, self.network = rank, network.size, network
        self.elements = 0  # of floating type, sent by this rank

    def send(self, facts: object, tensors: Sequence[Tensor], to: int) -> None:
        self.elements += sum(z.numel() for z in tensors if z.is_floating_point())
        message = facts, [z.detach().clone() for z in tensors]
        self.network.queues[self.rank, to].put(message)

    def receive(self, source: int, device: torch.device) -> tuple[Any, list[Tensor]]:
        return self.network.queues[source, self.rank].get(timeout=SECONDS)

    def facts(self, own: object) -> list[Any]:
        self.network.slots[self.rank] = own
        self.network.meeting.wait()
        found = list(self.network.slots)
        self.network.meeting.wait()
        return found

    def exchange(self, parts: Sequence[Tensor], shapes: Sequence[Sequence[int]]) -> list[Tensor]:
        others = [z for rank, z in enumerate(parts) if rank != self.rank]
        self.elements += sum(z.numel() for z in others if z.is_floating_point())
        found = [of[self.rank].detach().clone() for of in self.facts(list(parts))]
        assert [[*z.shape] for z in found] == [[*shape] for shape in shapes]
        return found

    def total(self, z: Tensor) -> Tensor:
        self.elements += 2 * z.numel()  # once to add them up, once to spread the sum
        return torch.stack(self.facts(z.detach().clone())).sum(0)


def on_ranks(size: int, job: Callable[[Simulated], Any]) -> list[Any]:
    """What the job returns on each rank; the first error of a rank is raised."""
    network, errors = Network(size), []

    def work(rank: int) -> Any:
        try:
            return job(Simulated(rank, network))
        except Exception as error:
            errors.append(error)
            network.meeting.abort()

    with ThreadPoolExecutor(size) as pool:
        found = list(pool.map(work, range(size)))
    if errors:
        raise errors[0]
    assert all(queue.empty() for queue in network.queues.values())
    return found
