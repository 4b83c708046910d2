"""`python -m csml.api.worker CALL`: one of the processes that `in_processes` has started."""

import ctypes
import os
import pickle
import signal
import sys
from pathlib import Path
from typing import NoReturn

from csml.api.processes import write_answer
from csml.console import show_log
from csml.crash import crashed
from csml.distributed.failure import ProcessLost, failed_process, note_failure
from csml.distributed.launch import leave_world
from csml.errors import CsmlError, machine_problem
from csml.runs.interruption import Interrupted

_PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    """Save and exit when the parent process is killed; otherwise this one would keep running and lock the run."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def main() -> int:
    _end_with_parent()
    call, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    # The command line of the parent: run.json, locks and crash reports show it.
    function, arguments, shows_log, sys.argv = pickle.loads(call.read_bytes())
    try:
        with show_log(always=shows_log):
            value = function(*arguments)
    except ProcessLost as error:
        write_answer(call, rank, "lost", str(error))
        return 1
    except CsmlError as error:
        note_failure(error)
        write_answer(call, rank, "error", str(error))
        return 1
    except Interrupted as stop:
        write_answer(call, rank, "interrupted", stop.args)
        return stop.exit_code
    except KeyboardInterrupt:  # before there was a checkpoint
        write_answer(call, rank, "stopped", None)
        return 130
    except Exception as error:
        if (lost := failed_process(error)) is not None:
            write_answer(call, rank, "lost", lost)
            return 1
        note_failure(error)
        write_answer(call, rank, "error", machine_problem(error) or crashed(error, sys.argv))
        return 1
    write_answer(call, rank, "value", value if rank == 0 else None)
    return 0


def _end(code: int) -> NoReturn:
    """End the process without running the destructors of C++ libraries.

    The answer is written, and nothing else is left to do. A thread of a library that still runs at exit can abort the
    process ("terminate called without an active exception"), which was seen once in hundreds of runs.
    """
    leave_world()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _end(main())
