"""Files that are replaced as a whole: what a killed writer leaves is removed, what a living one writes is not; and
files whose space is allocated before they are filled."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from csml.files import atomic_write, is_leftover, open_matrix

WRITER = """
import sys, time
from pathlib import Path
from csml.files import atomic_write
with atomic_write(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    print("open", flush=True)
    time.sleep(600)
"""


def written(path: Path, text: str) -> None:
    with atomic_write(path) as temporary:
        assert is_leftover(temporary) and not is_leftover(path)
        temporary.write_text(text)


def test_what_a_killed_process_left_goes_with_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None and writer.stdout.readline() == "open\n"
    written(path, "ours")  # it lives: its file stays
    assert sorted(file.read_text() for file in tmp_path.iterdir()) == ["half", "ours"]
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    written(tmp_path / "weights", "another")  # a name that begins alike
    assert len(list(tmp_path.iterdir())) == 3
    written(path, "again")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["weights", "weights.safetensors"]
    assert path.read_text() == "again"


def test_a_block_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a[b].json"  # a name that is a pattern
    written(path, "good")
    with pytest.raises(ZeroDivisionError), atomic_write(path) as temporary:
        temporary.write_text("bad")
        _ = 1 / 0
    assert path.read_text() == "good" and list(tmp_path.iterdir()) == [path]


def test_one_file_can_be_written_in_a_block_that_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with atomic_write(path) as outer:
        written(path, "inner")
        outer.write_text("outer")
    assert path.read_text() == "outer" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("shape", [(700, 500), (3, 5)])
def test_the_space_of_a_matrix_is_allocated_where_the_system_has_no_call_for_it(
    shape: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS."""
    path = tmp_path / "features.npy"
    monkeypatch.delattr(os, "posix_fallocate")
    matrix = open_matrix(path, np.float32, shape)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    assert path.stat().st_blocks * 512 >= path.stat().st_size
    matrix[:2] = 1.5
    matrix.flush()  # type: ignore[attr-defined]
    stored = np.load(path)
    assert stored.shape == shape and (stored[:2] == 1.5).all() and not stored[2:].any()
