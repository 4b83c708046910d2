"""`python -m csml.api.worker CALL`: one of the processes that `in_processes` has started."""

import os
import pickle
import sys
from pathlib import Path

from csml.api.processes import write_answer
from csml.api.session import ProcessLost
from csml.console import show_log
from csml.errors import CsmlError
from csml.runs.interruption import Interrupted


def main() -> int:
    call, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    function, arguments, shows_log = pickle.loads(call.read_bytes())
    try:
        with show_log(always=shows_log):
            value = function(*arguments)
    except ProcessLost as error:
        write_answer(call, rank, "lost", str(error))
        return 1
    except CsmlError as error:
        write_answer(call, rank, "error", str(error))
        return 1
    except Interrupted as stop:
        write_answer(call, rank, "interrupted", stop.args)
        return stop.exit_code
    write_answer(call, rank, "value", value if rank == 0 else None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
