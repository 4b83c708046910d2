"""`csml tables FOLDER …`: the tables of several ablations as one page."""

import logging
from dataclasses import dataclass
from pathlib import Path

from csml.config.parsing import SettingsParser
from csml.errors import CsmlError
from csml.report.tables import write_page

log = logging.getLogger("csml")


@dataclass
class TablesConfig:
    """Settings of `csml tables`."""

    output: str = "tables.md"
    """The page, in Markdown; plots go into a folder of its name."""
    title: str = "Ablations"
    """Its heading."""
    introduction: str | None = None
    """A Markdown file that is put under the heading."""


def run(arguments: list[str]) -> int:
    summary = "Put the tables and plots of finished ablations on one page, each with its command, commit and minutes."
    parser = SettingsParser("tables", TablesConfig, summary, "csml tables FOLDER … [--output FILE]")
    parser.add_argument("folders", type=str, nargs="+", help="Directories that csml ablate has written.")
    settings = parser.settings(arguments)
    config = parser.build(settings, TablesConfig)
    output = Path(config.output).expanduser()
    introduction = Path(config.introduction).expanduser() if config.introduction else None
    if introduction is not None and not introduction.is_file():
        raise CsmlError(f"introduction: there is no file {introduction}")
    write_page([Path(folder).expanduser() for folder in settings.folders], output, config.title, introduction)
    log.info("%d tables in %s", len(settings.folders), output)
    return 0
