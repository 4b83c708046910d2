"""What the processes of a run tell each other, against what one process would know."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from csml.distributed.failure import failed_process, note_failure
from csml.distributed.launch import leave_world
from csml.distributed.world import OWN_PROCESSES, World, cores_each
from csml.errors import CsmlError
from processes import together


@given(st.integers(0, 1000), st.integers(1, 16))
def test_every_row_is_somebody_s_and_shares_are_even(rows: int, size: int) -> None:
    shares = [World(rank, size).share(rows) for rank in range(size)]
    assert [row for share in shares for row in range(rows)[share]] == list(range(rows))
    lengths = [share.stop - share.start for share in shares]
    assert max(lengths) - min(lengths) <= 1


@given(st.integers(1, 300), st.integers(1, 5), st.integers(1, 5))
def test_pieces_and_shares_of_them_lay_out_the_batch_in_order(rows: int, size: int, pieces: int) -> None:
    split = [list(World(rank, size).split_batch(rows, pieces)) for rank in range(size)]
    laid = [row for piece in range(pieces) for rank in range(size) for row in range(rows)[split[rank][piece][0]]]
    assert laid == list(range(rows))
    for of_rank in split:
        for own, part in of_rank:
            assert (part.start, part.total) == (own.start, rows)
        assert [part.first for _, part in of_rank] == [True] + [False] * (pieces - 1)
        assert [part.last for _, part in of_rank] == [False] * (pieces - 1) + [True]
        assert sum(part.in_flight for _, part in of_rank) == rows


def conversation(world: World) -> dict[str, Any]:
    rows = torch.arange(14.0).view(7, 2)
    mine = rows[world.share(7)]
    worked: list[int] = []

    def squares(work: Sequence[int]) -> Iterator[int]:
        for item in work:
            worked.append(item)
            yield item * item

    try:
        world.broadcast(lambda: (_ for _ in ()).throw(CsmlError("data: no")))
    except CsmlError as error:
        refused = str(error)
    return {
        "gathered": world.all_gather(mine, 7),
        "reordered": world.reorder(mine, torch.tensor([6, 0, 5, 1, 1, 4, 3])),
        "parts": [part.clone() for part in world.broadcast_each(torch.full((world.rank, 2), float(world.rank)))],
        "everyones": world.all_gather_object({"rank": world.rank}),
        "in_order": list(world.map_in_order(list(range(8)), squares)),
        "worked": worked,
        "sum": world.all_reduce_sum(torch.tensor([world.rank, 1])),
        "largest": world.all_reduce_max(7 if world.rank == 1 else 0),
        "told": world.broadcast(lambda: f"by {world.rank}"),
        "refused": refused,
    }


def test_three_processes_agree() -> None:
    heard = together(3, conversation)
    for one in heard:
        assert torch.equal(one["gathered"], torch.arange(14.0).view(7, 2))
        assert [len(part) for part in one["parts"]] == [0, 1, 2]
        assert one["parts"][2].tolist() == [[2.0, 2.0]] * 2
        assert one["everyones"] == [{"rank": 0}, {"rank": 1}, {"rank": 2}]
        assert one["in_order"] == [n * n for n in range(8)]
        assert one["sum"].tolist() == [3, 3]
        assert one["largest"] == 7
        assert one["told"] == "by 0"
        assert one["refused"] == "data: no"
    whole = torch.cat([one["reordered"] for one in heard])
    assert torch.equal(whole, torch.arange(14.0).view(7, 2)[[6, 0, 5, 1, 1, 4, 3]])
    assert sorted(item for one in heard for item in one["worked"]) == list(range(8))  # each item is done once


def threads_around_leaving(world: World) -> tuple[list[str], list[str]]:
    def threads() -> list[str]:
        names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
        return [name for name in names if "gloo" in name]

    world.barrier()
    before = threads()
    leave_world()
    return before, threads()


def test_no_thread_of_gloo_is_left_when_a_process_has_left_the_world() -> None:
    """One that lives until Python has ended can abort the process."""
    for before, after in together(2, threads_around_leaving):
        assert before and not after


def _one_fails(world: World) -> str | None:
    """Rank 1 fails and says why; rank 0 waits for it in vain."""
    if world.rank == 1:
        note_failure(CsmlError("data: the disk\nis on fire"))
        return None
    time.sleep(0.2)
    return failed_process(RuntimeError("Connection closed by peer [127.0.0.1]:1234"))


def test_the_others_say_who_failed_and_why() -> None:
    first, _ = together(2, _one_fails)
    assert first is not None
    assert first.startswith("process 1 of 2 (") and first.endswith("failed: data: the disk is on fire")


def _one_vanishes(world: World) -> str | None:
    if world.rank == 1:
        time.sleep(4)
        return None
    return failed_process(RuntimeError("Connection reset by peer"))


def test_a_process_that_left_no_note_is_named() -> None:
    first, _ = together(2, _one_vanishes)
    assert first == "process 1 of 2 no longer answers; perhaps it was killed, or its machine is down"


def test_other_errors_are_not_those_of_another_process() -> None:
    assert failed_process(RuntimeError("Connection closed by peer")) is None  # there is no other process


@pytest.mark.parametrize(
    ("started", "usable", "each"),
    [
        ({}, 64, 64), ({}, 4, 4),
        ({"LOCAL_WORLD_SIZE": "8"}, 64, 8), ({"LOCAL_WORLD_SIZE": "8"}, 4, 4), ({"LOCAL_WORLD_SIZE": "100"}, 64, 1),
        ({"LOCAL_WORLD_SIZE": "2", OWN_PROCESSES: "2"}, 4, 2), ({"LOCAL_WORLD_SIZE": "8", OWN_PROCESSES: "8"}, 4, 1),
    ],
    ids=["alone", "alone and bound", "launched", "launched with a share", "too many", "csml's own", "too many of csml"],
)  # fmt: skip
def test_processes_take_only_cores_that_they_may_use(
    started: dict[str, str], usable: int, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(usable)), raising=False)
    for name in ("LOCAL_WORLD_SIZE", OWN_PROCESSES):
        monkeypatch.delenv(name, raising=False)
    for name, value in started.items():
        monkeypatch.setenv(name, value)
    assert cores_each() == each
    assert cores_each(2) == usable // 2  # for processes that csml is about to start
