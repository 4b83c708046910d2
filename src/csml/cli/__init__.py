"""The command line: `csml COMMAND …` parses, calls one verb of the library, and prints; every error is one line."""

import difflib
import sys

import yaml

from csml.cli.commands import COMMANDS, Command
from csml.config import as_settings
from csml.console import show_log
from csml.errors import CsmlError

_HELP = """csml learns visual representations from unlabelled images.

usage: csml COMMAND [options]

{commands}

Start with:           csml demo
With your own images: csml pretrain --preset photos --data FOLDER
Named settings:       csml presets
The usual settings:   csml COMMAND --help
Every setting:        csml COMMAND --help all
Something is wrong:   csml doctor
"""


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script."""
    words = sys.argv[1:] if arguments is None else arguments
    sys.exit(_dispatch(words))


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
        print(f"csml: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        return _stopped(stop, words)


def _run(command: Command, words: list[str]) -> int:
    given = command.options().parse(words)
    if given.print_config:
        print(yaml.safe_dump(as_settings(command.config(given)), sort_keys=False), end="")
        return 0
    with show_log(always=True):
        return command.run(given)


def _stopped(stop: KeyboardInterrupt, words: list[str]) -> int:
    """Say how to continue what was saved."""
    from csml.cli.show import continue_command
    from csml.runs.interruption import Interrupted

    if not isinstance(stop, Interrupted):
        print("csml: stopped", file=sys.stderr)
        return 130
    print(f"csml: stopped in {stop.where}; continue with: {continue_command(stop, words)}", file=sys.stderr)
    return stop.exit_code
