"""The processes of a run: rank and size, how they split a batch, and the collectives between them.

Each rank takes a consecutive share of a batch, in rank order. Concatenating the shares gives the batch exactly as a
single process would hold it.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from torch import Tensor, nn

from csml.errors import CsmlError

T = TypeVar("T")
R = TypeVar("R")

OWN_PROCESSES = "CSML_PROCESSES"
"""The environment variable in which processes that csml itself has started find their number."""


class Part(NamedTuple):
    """Which rows of a batch a process holds.

    A batch may go through the network in several pieces (gradient accumulation), and the ranks split each piece.
    """

    start: int
    """row of the batch at which these rows start"""
    total: int
    """rows of the whole batch"""
    in_flight: int
    """rows of this piece over all ranks: those that go through the network at the same time"""
    piece: int = 0
    """index of the piece"""
    pieces: int = 1
    """number of pieces"""

    @property
    def first(self) -> bool:
        return self.piece == 0

    @property
    def last(self) -> bool:
        return self.piece == self.pieces - 1


def whole(rows: int) -> Part:
    """The part for a whole batch of `rows` rows in a single process."""
    return Part(0, rows, rows)


@dataclass(frozen=True)
class World:
    """The `size` processes of a run, seen from the process with number `rank`; a single process by default."""

    rank: int = 0
    size: int = 1

    @property
    def is_rank_zero(self) -> bool:
        """Whether this process is rank 0, the one that writes files and logs."""
        return self.rank == 0

    def share(self, rows: int, rank: int | None = None) -> slice:
        """The rows of one rank (this one by default): consecutive, and as even as possible.

        If `rows` is not divisible by `size`, the first ranks get one row more.
        """
        each, more = divmod(rows, self.size)
        rank = self.rank if rank is None else rank
        start = rank * each + min(rank, more)
        return slice(start, start + each + (rank < more))

    def split_batch(self, rows: int, pieces: int) -> Iterator[tuple[slice, Part]]:
        """Split a batch into consecutive pieces and yield this rank's rows of each."""
        for number in range(pieces):
            piece = World(number, pieces).share(rows)
            in_flight = piece.stop - piece.start
            own = self.share(in_flight)
            start = piece.start + own.start
            yield slice(start, piece.start + own.stop), Part(start, rows, in_flight, number, pieces)

    def all_gather(self, local: Tensor, rows: int) -> Tensor:
        """Concatenate the shares of all ranks: `local` is this rank's share of `rows` rows, the result has all rows."""
        if self.size == 1:
            return local
        longest = -(-rows // self.size)
        padded = local.new_zeros(longest, *local.shape[1:])
        padded[: len(local)] = local
        gathered = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(gathered, padded)
        shares = [self.share(rows, rank) for rank in range(self.size)]
        return torch.cat([block[: s.stop - s.start] for block, s in zip(gathered, shares, strict=True)])

    def reorder(self, local: Tensor, order: Tensor) -> Tensor:
        """Reorder rows across ranks: this rank's share of `all_rows[order]`, where `local` is its share of `all_rows`.

        `order` `(rows,)` is the same on all ranks. Each row is sent only to the rank that needs it; an all_gather
        would send every row to every rank.
        """
        if self.size == 1:
            return local[order.to(local.device, non_blocking=True)]
        shares = [self.share(len(order), rank) for rank in range(self.size)]
        starts = torch.tensor([share.start for share in shares[1:]])
        owners = torch.bucketize(order, starts, right=True)  # (rows,)
        requested = [order[share][owners[share] == self.rank] - shares[self.rank].start for share in shares]
        sent = local[torch.cat(requested).to(local.device)].contiguous()
        senders = owners[shares[self.rank]]
        received = torch.empty(len(senders), *local.shape[1:], dtype=local.dtype, device=local.device)
        counts = senders.bincount(minlength=self.size).tolist()
        dist.all_to_all_single(received, sent, counts, [len(rows) for rows in requested])
        # Rows arrive sorted by sender; the inverse of a stable sort puts each at its place.
        return received[senders.argsort(stable=True).argsort().to(local.device)]

    def broadcast_each(self, local: Tensor) -> Iterator[Tensor]:
        """Yield the tensor of every rank in rank order, one at a time; their lengths may differ."""
        lengths = self.all_gather_object(len(local))
        for rank, length in enumerate(lengths):
            block = local.contiguous() if rank == self.rank else local.new_empty(length, *local.shape[1:])
            if self.size > 1:
                dist.broadcast(block, src=rank)
            yield block

    def all_gather_object(self, value: T) -> list[T]:
        """The value of every rank, in rank order. Values are pickled, so keep them small."""
        if self.size == 1:
            return [value]
        gathered: list[Any] = [None] * self.size
        dist.all_gather_object(gathered, value)
        return gathered

    def map_in_order(self, items: Sequence[T], function: Callable[[Sequence[T]], Iterator[R]]) -> Iterator[R]:
        """Yield one result per item, in order and on every rank, while each rank computes every size-th result.

        `function` yields one result per item it is given. Results are pickled: their tensors must be on the CPU.
        """
        if self.size == 1:
            yield from function(items)
            return
        local = function(items[self.rank :: self.size])
        for first in range(0, len(items), self.size):
            computed = [next(local)] if first + self.rank < len(items) else []
            yield from (result for results in self.all_gather_object(computed) for result in results)
        next(local, None)  # runs the generator to its end

    def all_reduce_sum(self, values: Tensor) -> Tensor:
        """The sum over all ranks."""
        if self.size > 1:
            values = values.clone()
            dist.all_reduce(values)
        return values

    def all_reduce_max(self, value: int) -> int:
        """The largest value over all ranks."""
        if self.size == 1:
            return value
        largest = torch.tensor(value)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return int(largest)

    def broadcast(self, compute: Callable[[], T]) -> T:
        """Call `compute` on rank 0 only and return its result on all ranks; if it raises CsmlError, all ranks do."""
        if self.size == 1:
            return compute()
        sent: list[Any] = [None, None]  # the result, the error
        if self.is_rank_zero:
            try:
                sent[0] = compute()
            except CsmlError as error:
                sent[1] = error
        dist.broadcast_object_list(sent, src=0)
        if sent[1] is not None:
            raise sent[1]
        return sent[0]

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier()

    def average_statistics(self, network: nn.Module) -> None:
        """Replace BatchNorm's running statistics by their mean over all ranks.

        A single process that normalises as many sub-batches (`csml.models.split_batchnorm`) averages the same way.
        """
        if self.size > 1:
            set_running_statistics(network, self.all_reduce_sum(running_statistics(network)) / self.size)


def running_statistics(network: nn.Module) -> Tensor:
    """All running means and variances of a network's BatchNorm layers, concatenated: `(n,)`."""
    buffers = _running_buffers(network)
    return torch.cat([buffer.flatten() for buffer in buffers]) if buffers else torch.empty(0)


@torch.no_grad()
def set_running_statistics(network: nn.Module, values: Tensor) -> None:
    """Write values in the layout of `running_statistics` back into the network."""
    buffers = _running_buffers(network)
    for buffer, piece in zip(buffers, values.split([buffer.numel() for buffer in buffers]), strict=True):
        buffer.copy_(piece.view_as(buffer))


def _running_buffers(network: nn.Module) -> list[Tensor]:
    return [value for name, value in network.named_buffers() if name.endswith(("running_mean", "running_var"))]


ALONE = World()
"""A run with one process."""


def world_of(fabric: Fabric) -> World:
    """The world that fabric has joined."""
    return World(fabric.global_rank, fabric.world_size)


def usable_cores() -> int:
    """CPU cores that this process may use: fewer than the machine has if it is bound to some of them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cores_each(processes: int | None = None) -> int:
    """CPU cores per process on this machine, for `processes` processes that csml starts.

    By default: for as many as were launched. Those of csml share the cores of the process that started them. Other
    launchers may have bound each process to its share, or all to the same cores, which looks the same from inside.
    """
    own = processes or int(os.environ.get(OWN_PROCESSES, "0"))
    if own:
        return max(1, usable_cores() // own)
    return min(usable_cores(), max(1, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
