"""Reads YAML files of settings safely: a file may come from anywhere."""

import logging
from pathlib import Path
from typing import Any

import yaml

from csml.config.layers import Layer
from csml.errors import CsmlError, did_you_mean, disk_problem, reason
from csml.files import read_file

log = logging.getLogger("csml")

_MOST_BYTES = 2**20
_MOST_ALIASES = 20
"""Each alias may double the data, so a few dozen would exhaust the memory."""


def read_config_file(path: str | Path) -> Layer:
    """The settings in a YAML file; an empty file has none."""
    file = Path(path).expanduser()
    tree = read_yaml(file, "config: ")
    if tree is None:
        log.warning("config: %s is empty, so it sets nothing", file)
        tree = {}
    if not isinstance(tree, dict):
        raise CsmlError(f"config: {file} has no settings; expected lines such as epochs: 10")
    return Layer(tree, origin=str(file))


def read_yaml(file: Path, before: str = "") -> Any:
    """Plain values of a YAML file; `before` is a prefix of the error message."""
    try:
        return load_yaml(read_file(file, _MOST_BYTES).decode("utf-8"))
    except FileNotFoundError as error:
        raise CsmlError(f"{before}there is no file {file}{did_you_mean(file)}") from error
    except UnicodeDecodeError as error:
        raise CsmlError(f"{before}{file} is not a text file in UTF-8") from error
    except OSError as error:
        raise CsmlError(f"{before}{file} cannot be read ({disk_problem(error)})") from error
    except ValueError as error:
        raise CsmlError(f"{before}{file} is not YAML ({reason(error)})") from error


def load_yaml(text: str) -> Any:
    """Plain values of a YAML document; raises ValueError with a one-line message if it is invalid."""
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ValueError(" ".join(f"{error.problem}{line}".split())) from error
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise ValueError(reason(error)) from error
    except RecursionError as error:
        raise ValueError("too deeply nested") from error


class _Loader(yaml.SafeLoader):
    """Refuses too many aliases, recursive aliases, and repeated keys."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.aliases = 0
        self.unfinished: set[str] = set()
        """anchors of unfinished nodes"""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            self.aliases += 1
            if self.aliases > _MOST_ALIASES:
                raise yaml.YAMLError(f"more than {_MOST_ALIASES} aliases")
        event = self.peek_event()  # type: ignore[no-untyped-call]
        anchor = getattr(event, "anchor", None)
        if anchor in self.unfinished:
            raise yaml.YAMLError(f"{anchor} contains itself")
        if anchor is None or isinstance(event, yaml.AliasEvent):
            return super().compose_node(parent, index)
        self.unfinished.add(anchor)
        node = super().compose_node(parent, index)
        self.unfinished.discard(anchor)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        seen: set[str] = set()
        for name in names:
            if name in seen:
                raise yaml.YAMLError(f"{name} is given twice")
            seen.add(name)
        return super().construct_mapping(node, deep)
