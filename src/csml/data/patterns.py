"""Patterns of paths: `{000..012}` and `{a,b}` as in WebDataset and shells, `*`, `?`, `[…]` and `**` as in glob."""

import glob
import os
import re
from pathlib import Path

from csml.errors import CsmlError, did_you_mean

_MOST = 1_000_000
_RANGE = re.compile(r"(\d{1,18})\.\.(\d{1,18})")


def is_pattern(source: str) -> bool:
    """Whether a source is a pattern; an existing path with such characters is not."""
    return not os.path.lexists(Path(source).expanduser()) and (
        bool(glob.has_magic(source)) or _group(source) is not None
    )


def expand(source: str) -> list[Path]:
    """The existing paths that match a pattern: those of each alternative in braces in turn, those of a star sorted.

    Raises:
        CsmlError: nothing matches, or a name that braces list explicitly is missing.
    """
    found: list[Path] = []
    for one in expand_braces(os.path.expanduser(source)):
        if glob.has_magic(one):
            found += [Path(path) for path in sorted(glob.glob(one, recursive=True), key=os.fsencode)]
        elif os.path.exists(one):
            found.append(Path(one))
        else:
            raise CsmlError(f"data: there is no {one}, which {source} stands for{did_you_mean(one)}")
    if not found:
        raise CsmlError(f"data: nothing matches {source}")
    return list(dict.fromkeys(found))


def expand_braces(pattern: str) -> list[str]:
    """All expansions of a pattern with braces, in order: `a{1,2}` → a1, a2; `{08..10}` → 08, 09, 10.

    Braces that are unbalanced or have neither a comma nor a range are literal.
    """
    heads, rest = [""], pattern
    while (place := _group(rest)) is not None:
        start, end = place
        choices = [choice for option in _options(rest[start + 1 : end]) for choice in option]
        if len(heads) * len(choices) > _MOST:
            raise CsmlError(f"data: {pattern} stands for more than {_MOST:,} paths")
        heads = [head + rest[:start] + choice for head in heads for choice in choices]
        rest = rest[end + 1 :]
    return [head + rest for head in heads]


def fixed_part(pattern: str) -> Path:
    """The folder before the first star or brace, to which the matching paths are relative."""
    before = re.split(r"[*?\[{]", os.path.expanduser(pattern), maxsplit=1)[0]
    return Path(before.rpartition("/")[0] or ("/" if before.startswith("/") else "."))


def _group(text: str) -> tuple[int, int] | None:
    """Positions of the first pair of braces that contains alternatives or a range."""
    for start in (place for place, letter in enumerate(text) if letter == "{"):
        depth = 0
        for end in range(start, len(text)):
            depth += (text[end] == "{") - (text[end] == "}")
            if depth == 0:
                inside = text[start + 1 : end]
                if len(_alternatives(inside)) > 1 or _RANGE.fullmatch(inside):
                    return start, end
                break
    return None


def _options(inside: str) -> list[list[str]]:
    if bounds := _RANGE.fullmatch(inside):
        first, last = bounds.groups()
        step = 1 if int(first) <= int(last) else -1
        if abs(int(last) - int(first)) >= _MOST:
            raise CsmlError(f"data: {{{inside}}} stands for more than {_MOST:,} paths")
        width = max(len(first), len(last)) if first.startswith("0") or last.startswith("0") else 0
        return [[str(number).zfill(width)] for number in range(int(first), int(last) + step, step)]
    return [expand_braces(option) for option in _alternatives(inside)]


def _alternatives(inside: str) -> list[str]:
    """Split at the commas that are not in inner braces."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(inside):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            parts.append(inside[start:place])
            start = place + 1
    return [*parts, inside[start:]]
