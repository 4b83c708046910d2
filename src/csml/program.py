"""The name by which the user can call csml."""

import shutil
import sys
from pathlib import Path


def program() -> str:
    """`csml` if it is on the PATH, else the path it was called with (such as .venv/bin/csml), else `python -m csml`."""
    if shutil.which("csml"):
        return "csml"
    called = Path(sys.argv[0])
    return str(called) if called.name == "csml" else "python -m csml"
