"""The processes of a run: which one this is, which part of a batch is its, and what all of them know.

A batch is dealt out in consecutive shares, in the order of the ranks, so that what the processes hold, laid end to end,
is the batch as one process would have it.
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


class Part(NamedTuple):
    """Where some rows of a batch belong: it is dealt out to the processes, and may go through the network in pieces."""

    start: int
    """row of the batch that the first is"""
    total: int
    """rows of the batch"""
    together: int
    """rows of all processes that go through the network at the same time"""
    piece: int = 0
    """number of the piece"""
    pieces: int = 1

    @property
    def first(self) -> bool:
        return self.piece == 0

    @property
    def last(self) -> bool:
        return self.piece == self.pieces - 1


def whole(rows: int) -> Part:
    """All rows of a batch at once, in one process."""
    return Part(0, rows, rows)


@dataclass(frozen=True)
class World:
    """`size` processes, of which this is number `rank`; alone by default."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and talks."""
        return self.rank == 0

    def share(self, rows: int, rank: int | None = None) -> slice:
        """The rows of a process: consecutive, as even as can be, the first ranks' one longer if need be."""
        each, more = divmod(rows, self.size)
        rank = self.rank if rank is None else rank
        start = rank * each + min(rank, more)
        return slice(start, start + each + (rank < more))

    def deal(self, rows: int, pieces: int) -> Iterator[tuple[slice, Part]]:
        """This process's rows of each piece of a batch; pieces are consecutive, and shares of a piece are."""
        for number in range(pieces):
            piece = World(number, pieces).share(rows)
            together = piece.stop - piece.start
            mine = self.share(together)
            start = piece.start + mine.start
            yield slice(start, piece.start + mine.stop), Part(start, rows, together, number, pieces)

    def gather(self, mine: Tensor, rows: int) -> Tensor:
        """All `rows` rows, of which every process gives its share."""
        if self.size == 1:
            return mine
        longest = -(-rows // self.size)
        padded = mine.new_zeros(longest, *mine.shape[1:])
        padded[: len(mine)] = mine
        everyone = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(everyone, padded)
        counts = [self.share(rows, rank) for rank in range(self.size)]
        return torch.cat([part[: s.stop - s.start] for part, s in zip(everyone, counts, strict=True)])

    def reorder(self, mine: Tensor, order: Tensor) -> Tensor:
        """This process's share of the rows `order` `(rows,)`, known to all, of what everybody gives a share of.

        A row goes only to the process that wants it: a gather would bring all rows to all.
        """
        if self.size == 1:
            return mine[order.to(mine.device, non_blocking=True)]
        shares = [self.share(len(order), rank) for rank in range(self.size)]
        starts = torch.tensor([share.start for share in shares[1:]])
        owners = torch.bucketize(order, starts, right=True)  # (rows,)
        wanted = [order[share][owners[share] == self.rank] - shares[self.rank].start for share in shares]
        sent = mine[torch.cat(wanted).to(mine.device)].contiguous()
        givers = owners[shares[self.rank]]
        received = torch.empty(len(givers), *mine.shape[1:], dtype=mine.dtype, device=mine.device)
        counts = givers.bincount(minlength=self.size).tolist()
        dist.all_to_all_single(received, sent, counts, [len(rows) for rows in wanted])
        # It came sorted by giver; a stable sort says where each row belongs.
        return received[givers.argsort(stable=True).argsort().to(mine.device)]

    def parts(self, mine: Tensor) -> Iterator[Tensor]:
        """Everybody's tensor, which may differ in length, in the order of the ranks; one at a time is held."""
        lengths = self.everyones(len(mine))
        for rank, length in enumerate(lengths):
            passing = mine.contiguous() if rank == self.rank else mine.new_empty(length, *mine.shape[1:])
            if self.size > 1:
                dist.broadcast(passing, src=rank)
            yield passing

    def everyones(self, value: T) -> list[T]:
        """What each process has to say, in the order of the ranks; for small things."""
        if self.size == 1:
            return [value]
        said: list[Any] = [None] * self.size
        dist.all_gather_object(said, value)
        return said

    def in_turn(self, work: Sequence[T], do: Callable[[Sequence[T]], Iterator[R]]) -> Iterator[R]:
        """The result of every item, in order and for all, though each process does only every size-th of them.

        `do` makes one result of each item, which can be sent: its tensors are on the CPU.
        """
        if self.size == 1:
            yield from do(work)
            return
        mine = do(work[self.rank :: self.size])
        for first in range(0, len(work), self.size):
            done = [next(mine)] if first + self.rank < len(work) else []
            yield from (result for results in self.everyones(done) for result in results)
        next(mine, None)  # so that it comes to its end

    def sum(self, values: Tensor) -> Tensor:
        """Added up over the processes."""
        if self.size > 1:
            values = values.clone()
            dist.all_reduce(values)
        return values

    def add_gradients(self, network: nn.Module) -> None:
        """Every process's gradients become the sum of all."""
        if self.size > 1:
            gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
            summed = self.sum(torch.cat([gradient.flatten() for gradient in gradients]))
            for gradient, values in zip(gradients, summed.split([g.numel() for g in gradients]), strict=True):
                gradient.copy_(values.view_as(gradient))

    def largest(self, value: int) -> int:
        """Of all processes; what one has noticed, all hear of."""
        if self.size == 1:
            return value
        told = torch.tensor(value)
        dist.all_reduce(told, dist.ReduceOp.MAX)
        return int(told)

    def told_by_first(self, find_out: Callable[[], T]) -> T:
        """What the first process has found out; a CsmlError of it is everybody's."""
        if self.size == 1:
            return find_out()
        said: list[Any] = [None, None]
        if self.first:
            try:
                said[0] = find_out()
            except CsmlError as error:
                said[1] = error
        dist.broadcast_object_list(said, src=0)
        if said[1] is not None:
            raise said[1]
        return said[0]

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier()

    def average_statistics(self, network: nn.Module) -> None:
        """BatchNorm's running statistics become the mean over the processes: what one process would have, since they
        are moving averages of batch means, and those of a batch are the means over its parts."""
        if self.size > 1:
            put_statistics(network, self.sum(statistics(network)) / self.size)


def statistics(network: nn.Module) -> Tensor:
    """All running statistics of BatchNorm inside, end to end: `(n,)`."""
    moving = _moving(network)
    return torch.cat([value.flatten() for value in moving]) if moving else torch.empty(0)


@torch.no_grad()
def put_statistics(network: nn.Module, values: Tensor) -> None:
    """What `statistics` has taken."""
    moving = _moving(network)
    for buffer, part in zip(moving, values.split([buffer.numel() for buffer in moving]), strict=True):
        buffer.copy_(part.view_as(buffer))


def _moving(network: nn.Module) -> list[Tensor]:
    return [value for name, value in network.named_buffers() if name.endswith(("running_mean", "running_var"))]


ALONE = World()


def world_of(fabric: Fabric) -> World:
    """The processes that fabric has joined."""
    return World(fabric.global_rank, fabric.world_size)


def cores_each(processes: int | None = None) -> int:
    """Cores that each of several processes on this machine may use; as many as were started, if it is not said."""
    return max(1, (os.cpu_count() or 1) // (processes or int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
