"""The value of `data`: one source of images, or several separated by commas.

A source is a folder, a file, a pattern, or a name; `csml/data/open.py` opens it. The value is one string, as in
config.yaml and on the command line.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NewType

from csml.config.images import NAMED
from csml.errors import CsmlError

Sources = NewType("Sources", str)
"""Type of a setting that takes a string or a list of strings."""

HUB = "hf:"
"""Prefix of a data set on the Hugging Face hub."""


def split_sources(data: str) -> tuple[str, ...]:
    """The sources in `data`. A comma in braces belongs to a pattern, one in an existing path to the path."""
    if "," not in data or os.path.exists(os.path.expanduser(data)):
        return (data,)
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(data):
        depth += (letter == "{") - (letter == "}" and depth > 0)
        if letter == "," and depth == 0:
            parts.append(data[start:place])
            start = place + 1
    return tuple(part.strip() for part in (*parts, data[start:]) if part.strip()) or (data,)


def join_sources(sources: Iterable[str]) -> str:
    """Several sources as one value; raises CsmlError if they could not be split again."""
    listed = [source.strip() for source in sources]
    if not listed:
        raise CsmlError("data: the list is empty; give at least one folder of images")
    joined = ",".join(listed)
    if len(listed) > 1 and split_sources(joined) != tuple(listed):
        odd = next((source for source in listed if not source or "," in source), listed[0])
        raise CsmlError(f"data: {odd!r} cannot be one of several sources; give a list file with one path per line")
    return joined


def absolute_sources(data: str) -> str:
    """The same sources with absolute paths; names and URLs are unchanged."""
    return join_sources(
        str(Path(source).expanduser().absolute()) if is_path(source) else source for source in split_sources(data)
    )


def is_path(source: str) -> bool:
    """Whether a source is a path or a pattern of paths, not a name or a URL."""
    return source not in NAMED and "://" not in source and not source.startswith(HUB)


def sources_title(data: str) -> str:
    """A short name for the run directory: `photos`, `shards`, `photos+2`."""
    first, *others = split_sources(data)
    name = Path(first).name
    if not (is_path(first) and os.path.isdir(first)):
        name = re.sub(r"[^\w.-]+", "-", re.sub(r"[-_.]*(\{[^}]*\}|[*?\[\]])+", "", first.rpartition("/")[2]))
        name = re.sub(r"\.(tar|txt|csv|tsv|jsonl?|ndjson|parquet|arrow)$", "", name).strip("-.")
    return (name or "images") + (f"+{len(others)}" if others else "")
