"""The queue against a list."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from csml.methods.queue import EMPTY, KeyQueue


@given(length=st.integers(1, 12), batches=st.lists(st.integers(1, 30), max_size=8))
def test_any_length_holds_the_newest_keys_of_any_batches(length: int, batches: list[int]) -> None:
    queue = KeyQueue({3: 4, 4: 4}, length)
    remembered: list[int] = []
    for size in batches:
        ids = torch.arange(size) + len(remembered)
        remembered += ids.tolist()
        keys = ids[:, None].expand(size, 4).float()
        queue.enqueue({3: keys, 4: keys * 10}, ids)
    newest = remembered[-length:]
    held = [id for id in queue.ids.tolist() if id != EMPTY]
    assert sorted(held) == newest
    for slot, id in enumerate(queue.ids.tolist()):
        if id != EMPTY:  # the same image in the same slot at every level
            assert queue.keys(3)[slot].tolist() == [id] * 4
            assert queue.keys(4)[slot].tolist() == [10 * id] * 4


def test_fresh_slots_are_unit_vectors_of_no_image() -> None:
    queue = KeyQueue({4: 16}, 7)
    torch.testing.assert_close(queue.keys(4).norm(dim=1), torch.ones(7))
    assert queue.ids.tolist() == [EMPTY] * 7


def test_the_oldest_are_overwritten_first() -> None:
    queue = KeyQueue({4: 2}, 4)
    for first in (0, 3):
        ids = torch.arange(first, first + 3)
        queue.enqueue({4: torch.zeros(3, 2)}, ids)
    assert queue.ids.tolist() == [4, 5, 2, 3]


def test_known_images_are_found_in_their_slots() -> None:
    queue = KeyQueue({4: 2}, 5)
    queue.enqueue({4: torch.zeros(4, 2)}, torch.tensor([7, 8, 9, 7]))
    found = queue.holds(torch.tensor([[7, 100], [9, 8]]))
    assert found.tolist() == [[True, False, False, True, False], [False, True, True, False, False]]
