"""Command lines and YAML files to typed settings, with jsonargparse; mistakes become one line."""

import argparse
import difflib
import re
from typing import Any, NoReturn, TypeVar, cast

from jsonargparse import ArgumentParser, set_parsing_settings

from csml.errors import CsmlError

C = TypeVar("C")

set_parsing_settings(docstring_parse_attribute_docstrings=True)


class SettingsParser(ArgumentParser):
    """jsonargparse over one dataclass, whose docstrings are the help."""

    def __init__(self, command: str, schema: type[Any], summary: str, usage: str) -> None:
        super().__init__(prog=f"csml {command}", description=summary, usage=usage, exit_on_error=False)
        self.add_argument("--config", action="config", help="A YAML file of settings, laid over the preset.")
        self.add_class_arguments(schema, as_group=False)

    def settings(self, arguments: list[str]) -> argparse.Namespace:
        """Parse; an unknown key or a value of the wrong type raises CsmlError."""
        try:
            return cast(argparse.Namespace, self.parse_args([_option_name(word) for word in arguments]))
        except (argparse.ArgumentError, TypeError, ValueError, KeyError) as error:
            raise CsmlError(self._in_one_line(str(error))) from error

    def start_from(self, defaults: dict[str, Any], origin: str) -> None:
        """Lay dotted settings over the schema's defaults."""
        unknown = [key for key in defaults if f"--{key}" not in self.known_options()]
        if unknown:
            raise CsmlError(f"{origin}: the key {unknown[0]} is unknown to this version of csml")
        self.set_defaults(defaults)

    def first_look(self, arguments: list[str]) -> argparse.Namespace:
        """What decides about defaults (preset, run, weights), before help or settings are printed with them."""
        printing = ("-h", "--help", "--print_config")
        return self.settings([word for word in arguments if not _option_name(word).startswith(printing)])

    def build(self, settings: argparse.Namespace, schema: type[C]) -> C:
        """The dataclass, filled."""
        built = self.instantiate(settings)
        names = schema.__dataclass_fields__  # type: ignore[attr-defined]
        return schema(**{name: built[name] for name in names})

    def known_options(self) -> list[str]:
        return [option for action in self._actions for option in action.option_strings if option.startswith("--")]

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        raise CsmlError(self._in_one_line(message)) from ex

    def _in_one_line(self, message: str) -> str:
        text = " ".join(message.split())
        if unknown := re.search(r"unrecognized arguments: (--[^\s=]+)", text):
            return f"unknown option {unknown[1]}{self._nearest(unknown[1])}"
        if unknown := re.search(r"[Kk]ey '?\"?([\w.]+)'?\"? is not (?:expected|recognized|accepted)", text):
            return f"unknown key {unknown[1]}{self._nearest('--' + unknown[1])}"
        if wrong := re.search(r"[Kk]ey \"([\w.]+)\":.*?(?:Expected|expected) an? (.+?)\. Got value: (.*)", text):
            return f"{wrong[1]}: expected {_plain_type(wrong[2])}, got {wrong[3]}"
        return text.replace("Parser key ", "")

    def _nearest(self, option: str) -> str:
        close = difflib.get_close_matches(option, self.known_options(), n=1, cutoff=0.5)
        return f"; did you mean {close[0]}?" if close else f"; see {self.prog} --help"


def _option_name(word: str) -> str:
    """--batch-size and --batch_size are the same."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return "--" + name[2:].replace("-", "_") + equals + value


def _plain_type(text: str) -> str:
    if literal := re.search(r"Literal\[(.*?)\]", text):
        return "one of " + literal[1].replace("'", "")
    if "tuple" in text:
        return "a list such as [3, 4]"
    for name, plain in (("int", "a whole number"), ("float", "a number"), ("bool", "true or false")):
        if name in text:
            return plain
    return text
