"""What the documents show: their blocks of commands and of Python."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "benchmarks/README.md")),
]


def blocks(page: str, language: str) -> list[str]:
    """The blocks of a page, named from the root of the repository, that are marked with exactly this language."""
    text = (ROOT / page).read_text()
    return [
        body for kind, body in re.findall(r"^```([^\n]*)\n(.*?)^```", text, re.M | re.S) if kind.strip() == language
    ]


def lines_of(block: str) -> list[list[str]]:
    """The words of each line of a block, without comments; a backslash continues a line."""
    lines = block.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def commands(page: str) -> list[list[str]]:
    """The commands of the blocks that are marked as `sh`: they are run."""
    return [words for block in blocks(page, "sh") for words in lines_of(block)]
