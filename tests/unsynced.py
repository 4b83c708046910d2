"""Files are not forced to the disk in tests: that is for a power failure, and a kill leaves what the kernel holds.

A small run would wait for the disk twenty times, one that saves every step forty times.
"""

import os


def _at_leisure(descriptor: int) -> None:
    """Leave it to the kernel when the file reaches the disk."""
    os.fstat(descriptor)  # a descriptor that is closed is an error all the same


os.fsync = _at_leisure  # type: ignore[assignment]
