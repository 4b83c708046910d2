"""The help of every setting: the docstring below its field, with its bounds and its default."""

import ast
import functools
import inspect
import sys
from typing import Any

from csml.config.build import Leaf
from csml.config.fields import shown


def described(leaf: Leaf) -> str:
    """Documentation, bounds and default of a setting."""
    notes = [leaf.rule.phrase()] if leaf.rule is not None else []
    if leaf.default_text is not None and (leaf.default is not None or "{}" not in leaf.default_text):
        notes.append(leaf.default_text.format(shown(leaf.default)))
    elif leaf.default is not None:
        notes.append(f"default: {shown(leaf.default)}")
    text = documentation(leaf.owner).get(leaf.name, "")
    return f"{text} ({'; '.join(notes)})" if notes else text


def documentation(schema: type[Any]) -> dict[str, str]:
    """The docstrings of all fields of a dataclass, including those of its base classes."""
    found: dict[str, str] = {}
    for kind in reversed(schema.__mro__[:-1]):
        found |= _module_documentation(kind.__module__).get(kind.__qualname__, {})
    return found


@functools.cache
def _module_documentation(name: str) -> dict[str, dict[str, str]]:
    """The docstrings below the fields of the classes of a module: `{class: {field: text}}`."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (OSError, TypeError):  # the source is not available
        return {}
    found: dict[str, dict[str, str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            texts = found.setdefault(node.name, {})
            for before, after in zip(node.body, node.body[1:], strict=False):
                if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name):
                    text = after.value.value if _is_docstring(after) else ""  # type: ignore[attr-defined]
                    if text:
                        texts[before.target.id] = " ".join(text.split())
    return found


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
