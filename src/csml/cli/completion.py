"""`csml completion`: a script for bash, zsh or fish that completes commands, settings and their values.

The script is generated from the commands and their schemas and is self-contained: pressing Tab does not start Python.
"""

import os
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args, get_origin

from csml.config.build import Leaf, kind_of, leaves
from csml.config.documentation import documentation
from csml.config.fields import Choice
from csml.errors import CsmlError


@dataclass(frozen=True)
class Completion:
    """A script, and where it was installed."""

    shell: str
    script: str
    path: Path | None
    needs: str | None = None
    """what is still to be done, if the shell would not read the installed script by itself"""


@dataclass(frozen=True)
class _Option:
    name: str
    """with its dashes"""
    values: tuple[str, ...]
    """possible values; empty: any text, or a file"""
    takes_value: bool
    help: str


def completion(shell: str, install: bool = False) -> Completion:
    """The script that completes `csml` in a shell.

    Args:
        shell: bash, zsh or fish.
        install: install the script for the shell.
    """
    if shell not in _SHELLS:
        raise CsmlError(f"shell: one of {', '.join(_SHELLS)}, not {shell!r}")
    write, place = _SHELLS[shell]
    script = write(_commands())
    if not install:
        return Completion(shell, script, None)
    path = place(script)
    return Completion(shell, script, path, _needs(path) if shell == "bash" else None)


_Commands = dict[str, tuple[str, list[_Option]]]
"""Name → one-line description and options."""


def _commands() -> _Commands:
    from csml.cli.commands import COMMANDS  # it imports this module's command

    found: _Commands = {}
    for name, command in COMMANDS.items():
        options = command.options()
        own = [
            _Option(f"--{key.replace('_', '-')}", options.presets if key == "preset" else (), kind is not bool, text)
            for key, (kind, text) in options.own().items()
        ]
        found[name] = (command.about, own + [_option(leaf) for leaf in leaves(command.schema).values()])
    return found


def _option(leaf: Leaf) -> _Option:
    kind = kind_of(leaf.kind)
    values: tuple[str, ...] = ()
    if get_origin(kind) is Literal:
        values = tuple(map(str, get_args(kind)))
    elif isinstance(leaf.rule, Choice):
        values = leaf.rule.names
    elif kind is bool:
        values = ("true", "false")
    return _Option(f"--{leaf.key}", values, True, documentation(leaf.owner).get(leaf.name, ""))


def _bash(commands: _Commands) -> str:
    options = [f"      {name}) words='{_names(found)}' ;;" for name, (_, found) in commands.items()]
    values = [
        f"    {name}:{option.name}) words='{' '.join(option.values)}' ;;"
        for name, (_, found) in commands.items()
        for option in found
        if option.values
    ]
    return "\n".join([
        "# Completion of csml in bash.",
        "_csml() {",
        '  local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"',
        '  local command="${COMP_WORDS[1]}" words=""',
        '  if [ "$COMP_CWORD" -eq 1 ]; then',
        f"    words='{' '.join(commands)}'",
        '  elif [ "${current:0:1}" = "-" ]; then',
        '    case "$command" in',
        *options,
        "    esac",
        "  else",
        '    case "$command:$before" in',
        *values,
        "    esac",
        "  fi",
        '  if [ -n "$words" ]; then',
        '    COMPREPLY=($(compgen -W "$words" -- "$current"))',
        "  else",
        '    COMPREPLY=($(compgen -f -- "$current"))',
        "  fi",
        "}",
        "complete -o filenames -F _csml csml",
    ])  # fmt: skip


def _zsh(commands: _Commands) -> str:
    about = [f"      '{name}:{_quoted(text)}'" for name, (text, _) in commands.items()]
    options: list[str] = []
    values: list[str] = []
    for name, (_, found) in commands.items():
        described = " ".join(f"'{option.name}:{_quoted(_first_sentence(option.help))}'" for option in found)
        options.append(f"      {name}) found=({described}) ;;")
        values += [f"    {name}:{one.name}) compadd {' '.join(one.values)}; return ;;" for one in found if one.values]
    return "\n".join([
        "#compdef csml",
        "# Completion of csml in zsh.",
        "_csml() {",
        "  local -a found",
        "  if (( CURRENT == 2 )); then",
        "    found=(",
        *about,
        "    )",
        "    _describe command found; return",
        "  fi",
        '  if [[ "${words[CURRENT]}" == -* ]]; then',
        '    case "${words[2]}" in',
        *options,
        "    esac",
        "    _describe option found; return",
        "  fi",
        '  case "${words[2]}:${words[CURRENT-1]}" in',
        *values,
        "  esac",
        "  _files",
        "}",
        'if [[ "${funcstack[1]}" == _csml ]]; then _csml; else compdef _csml csml; fi',
    ])  # fmt: skip


def _fish(commands: _Commands) -> str:
    lines = ["# Completion of csml in fish."]
    for name, (about, found) in commands.items():
        lines.append(f"complete -c csml -n __fish_use_subcommand -f -a {name} -d '{_quoted(about)}'")
        for option in found:
            value = f" -x -a '{' '.join(option.values)}'" if option.values else " -r" if option.takes_value else ""
            seen = f"complete -c csml -n '__fish_seen_subcommand_from {name}' -l {option.name.removeprefix('--')}"
            lines.append(f"{seen}{value} -d '{_quoted(_first_sentence(option.help))}'")
    return "\n".join(lines)


def _names(options: list[_Option]) -> str:
    return " ".join(["--help", *(option.name for option in options)])


def _quoted(text: str) -> str:
    """Text between single quotes of any of the shells; zsh's descriptions have no colons."""
    return text.replace("'", "’").replace("\\", "").replace(":", "")


def _first_sentence(text: str) -> str:
    return text.split(". ")[0].rstrip(".")


def _folder(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / default)


def _install_bash(script: str) -> Path:
    return _written(_folder("XDG_DATA_HOME", ".local/share") / "bash-completion" / "completions" / "csml", script)


_BASH_COMPLETION = ("share/bash-completion/bash_completion", "etc/bash_completion", "etc/profile.d/bash_completion.sh")
"""Files of the package bash-completion, which reads the scripts in its folder."""
_PREFIXES = ("/", "/usr", "/usr/local")
_PACKAGE_MANAGERS = ("brew", "port")
"""Programs beside which, on a Mac, packages have their folders."""


def _needs(path: Path) -> str | None:
    """What to do if the package bash-completion, which would read the script, is not installed."""
    managers = [found for name in _PACKAGE_MANAGERS if (found := shutil.which(name))]
    prefixes = [*map(Path, _PREFIXES), *(Path(found).parent.parent for found in managers)]
    if any((prefix / file).exists() for prefix in prefixes for file in _BASH_COMPLETION):
        return None
    line = f"source {shlex.quote(str(path))}"
    return (
        f"the package bash-completion, which reads it, is not installed: install it, or add to ~/.bashrc:\n    {line}"
    )


def _install_fish(script: str) -> Path:
    return _written(_folder("XDG_CONFIG_HOME", ".config") / "fish" / "completions" / "csml.fish", script)


def _install_zsh(script: str) -> Path:
    """zsh has no folder for completions, so the startup file reads the script."""
    path = _written(_folder("XDG_DATA_HOME", ".local/share") / "csml" / "completion.zsh", script)
    start = _folder("ZDOTDIR", "") / ".zshrc"
    line = f"autoload -Uz compinit && compinit && source '{path}'  # csml completion"
    before = start.read_text("utf-8", "surrogateescape") if start.exists() else ""
    if line not in before.splitlines():
        with start.open("a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(f"{'' if before.endswith(chr(10)) or not before else chr(10)}{line}\n")
    return path


def _written(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", "utf-8")
    except OSError as error:
        raise CsmlError(
            f"cannot write {path} ({error.strerror}); print the script instead, without --install"
        ) from error
    return path


_SHELLS: dict[str, tuple[Callable[[_Commands], str], Callable[[str], Path]]] = {
    "bash": (_bash, _install_bash),
    "zsh": (_zsh, _install_zsh),
    "fish": (_fish, _install_fish),
}
