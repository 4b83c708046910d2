"""A test that kills its process, as a segmentation fault in a library does, fails `make test` instead of hanging it."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIES = "import os, signal\ndef test_before(): pass\ndef test_dies(): os.kill(os.getpid(), signal.SIGKILL)\n"
LIVES = "import time\ndef test_long(): time.sleep(0.5)\ndef test_short(): pass\n"


def test_a_crashed_worker_ends_the_run(tmp_path: Path) -> None:
    words = re.search(r"pytest (--numprocesses [^;\n]*)", (ROOT / "Makefile").read_text())
    assert words is not None
    options = words[1].replace("auto", "2").split()
    (tmp_path / "test_dies.py").write_text(DIES)
    for number in range(3):
        (tmp_path / f"test_lives_{number}.py").write_text(LIVES)
    command = [sys.executable, "-m", "pytest", *options, "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", str(tmp_path)], capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    assert done.returncode != 0
    assert "crashed while running" in done.stdout and "test_dies" in done.stdout, done.stdout + done.stderr
