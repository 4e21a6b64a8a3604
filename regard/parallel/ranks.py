"""What ranks send each other over torch.distributed. A test, or another network, gives an object with the same methods."""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from regard.core import OptionError, shown


class Ranks:
    """The ranks of a group, which hold consecutive parts of a sequence.

    Raises OptionError where no process group is initialised, and for a group that this process is not part of.
    """

    def __init__(self, group: "dist.ProcessGroup | None" = None):
        if not dist.is_available() or not dist.is_initialized():
            raise OptionError(
                "regard.parallel needs a process group: call torch.distributed.init_process_group first"
            )
        group = dist.group.WORLD if group is None else group
        if not isinstance(group, dist.ProcessGroup):
            raise OptionError(
                "regard.parallel: group must be a torch.distributed.ProcessGroup that this process is part of, got "
                f"{shown(group)}"
            )
        self.group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)

    def send(self, facts: object, tensors: Sequence[Tensor], to: int) -> None:
        """facts: any small value that pickles."""
        tensors = [z.detach().contiguous() for z in tensors]  # and so is what is received
        described = [z.to("meta") for z in tensors]
        dist.send_object_list([(facts, described)], group=self.group, group_dst=to)
        for z in tensors:
            if z.numel():
                dist.send(z, group=self.group, group_dst=to)

    def receive(self, source: int, device: torch.device) -> tuple[Any, list[Tensor]]:
        message: list = [None]
        dist.recv_object_list(message, group=self.group, group_src=source)
        facts, described = message[0]
        tensors = [torch.empty_like(z, device=device) for z in described]
        for z in tensors:
            if z.numel():
                dist.recv(z, group=self.group, group_src=source)
        return facts, tensors

    def facts(self, own: object) -> list:
        """The small value of every rank."""
        found = [None] * self.size
        dist.all_gather_object(found, own, group=self.group)
        return found

    def exchange(self, parts: Sequence[Tensor], shapes: Sequence[Sequence[int]]) -> list[Tensor]:
        """parts: one for each rank. Returns what each sent to this one, of these shapes."""
        own = torch.cat([z.flatten() for z in parts])
        sizes = [math.prod(one) for one in shapes]
        sent = own.byte() if own.dtype == torch.bool else own
        found = sent.new_empty(sum(sizes))
        dist.all_to_all_single(found, sent, sizes, [z.numel() for z in parts], group=self.group)
        pairs = zip(found.type_as(own).split(sizes), shapes, strict=True)
        return [z.view(*shape) for z, shape in pairs]

    def total(self, z: Tensor) -> Tensor:
        """The sum over all ranks."""
        z = z.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(z, group=self.group)
        return z
