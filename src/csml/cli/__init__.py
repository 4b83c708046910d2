"""The command line: `csml COMMAND …` parses, calls one verb of the library, and prints; every error is one line."""

import contextlib
import difflib
import os
import signal
import sys
import threading

import yaml

from csml.cli.commands import COMMANDS, Command
from csml.config import as_settings
from csml.console import show_log
from csml.crash import crashed
from csml.errors import CsmlError, machine_problem, one_line

_HELP = """csml learns visual representations from unlabelled images.

usage: csml COMMAND [options]

{commands}

Start with:           csml demo
With your own images: csml pretrain --data FOLDER
Named settings:       csml presets
Common settings:      csml COMMAND --help
Every setting:        csml COMMAND --help all
Something is wrong:   csml doctor
"""


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script."""
    words = sys.argv[1:] if arguments is None else arguments
    # Read by torch on import. Otherwise it prints a C++ stack trace when another process of the run has died.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    threading.excepthook = _thread_failed
    sys.exit(_dispatch(words))


def _thread_failed(failure: threading.ExceptHookArgs) -> None:
    """A thread of a library failed, such as TensorBoard's on a full disk; the main thread fails next, and reports
    why."""
    error = failure.exc_value
    if isinstance(error, Exception) and machine_problem(error) is None and sys.stderr is not None:
        print(f"csml: {one_line(crashed(error, sys.argv[1:]))}", file=sys.stderr)


def _dispatch(words: list[str]) -> int:
    if words[:1] == ["help"] and len(words) > 1:  # csml help COMMAND
        words = [words[1], "--help", *words[2:]]
    if not words or words[0] in ("-h", "--help", "help"):
        lines = (f"  {name:<12}{command.about}" for name, command in COMMANDS.items())
        print(_HELP.format(commands="\n".join(lines)), end="")
        return 0
    if words[0] in ("-V", "--version"):
        from csml import __version__

        print(f"csml {__version__}")
        return 0
    try:
        if words[0] not in COMMANDS:
            close = difflib.get_close_matches(words[0], COMMANDS, n=1)
            right = f"did you mean {close[0]}?" if close else f"choose one of {', '.join(COMMANDS)}"
            raise CsmlError(f"there is no command {words[0]!r}; {right}")
        return _run(COMMANDS[words[0]], words[1:])
    except CsmlError as error:
        _notify_other_processes(error)
        print(f"csml: error: {one_line(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        return _stopped(stop, words)
    except Exception as error:  # unexpected errors: a user never sees a traceback
        return _failed(error, words)


def _run(command: Command, words: list[str]) -> int:
    given = command.options().parse(words)
    if given.print_config:
        from csml.api.fastest_precision import explain_auto

        config = command.config(given)
        print(yaml.safe_dump(as_settings(config), sort_keys=False), end="")
        for line in explain_auto(config):
            print(f"# {line}")
        return 0
    with show_log(always=True):
        return command.run(given)


def _failed(error: Exception, words: list[str]) -> int:
    """Report a full disk, too little memory, or a bug in csml."""
    if isinstance(error, BrokenPipeError):  # the reader of our output has exited, such as `head`
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    text = _notify_other_processes(error) or machine_problem(error)
    print(f"csml: error: {one_line(crashed(error, words) if text is None else text)}", file=sys.stderr)
    return 2 if text is not None else 70


def _notify_other_processes(error: Exception) -> str | None:
    """Tell the other processes of the run why this one ends; or return which of them has failed."""
    if "torch.distributed" not in sys.modules:  # importing it takes seconds
        return None
    from csml.distributed.failure import ProcessLost, failed_process, note_failure

    lost = failed_process(error)
    if lost is None and not isinstance(error, ProcessLost):
        note_failure(error)
    return lost


def _stopped(stop: KeyboardInterrupt, words: list[str]) -> int:
    """Print how to continue the saved run."""
    from csml.cli.show import continue_command
    from csml.runs.directory import RunDirectory
    from csml.runs.interruption import Interrupted

    if not isinstance(stop, Interrupted):
        print("csml: stopped", file=sys.stderr)
        return 130
    print(f"csml: stopped in {stop.where}; continue with: {continue_command(stop, words)}", file=sys.stderr)
    if stop.command == "pretrain" and RunDirectory(stop.run).backbone.exists():
        print("the weights saved so far can be used like those of a finished run", file=sys.stderr)
    return stop.exit_code
