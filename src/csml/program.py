"""What to type to call csml again."""

import shutil
import sys
from pathlib import Path


def program() -> str:
    """`csml` where the shell finds it, else the path it was called by, such as .venv/bin/csml."""
    if shutil.which("csml"):
        return "csml"
    called = Path(sys.argv[0])
    return str(called) if called.name == "csml" else "python -m csml"
