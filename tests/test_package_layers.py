"""The packages stand in one order, and an import goes only to the left; lazy imports count too."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "csml"

LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "release", "amx_guard", "program", "console", "run_files", "synthetic", "pixels", "light_imports"),
    ("files", "extras", "progress"),
    ("crash",),
    ("config",),
    ("distributed",),
    ("data", "models"),
    ("views", "losses", "search"),
    ("weights",),
    ("methods",),
    ("runs",),
    ("evaluation",),
    ("sheets",),
    ("training",),
    ("api",),
    ("reporting",),
    ("explorer", "ablations", "demonstration"),
    ("cli",),
    ("__init__", "__main__"),
)
"""From left to right. Packages of one layer do not know each other."""

PLACE = {name: place for place, layer in enumerate(LAYERS) for name in layer}


def package(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imports(path: Path) -> set[str]:
    """Packages of csml that a file imports anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "csml":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.split(".")[0] == "csml"]
        else:
            continue
        found |= {name.split(".")[1] if "." in name else "__init__" for name in names}
    return found - {"__version__"}


FILES = sorted(SOURCE.rglob("*.py"))


def test_every_package_has_a_place() -> None:
    assert {package(path) for path in FILES} == set(PLACE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_left(path: Path) -> None:
    own = package(path)
    wrong = {name for name in imports(path) - {own} if PLACE[name] >= PLACE[own]}
    assert not wrong, f"{own} may not import {', '.join(sorted(wrong))}"


def test_views_know_nothing_of_frameworks_nor_frameworks_of_how_views_are_made() -> None:
    for path in (SOURCE / "views").glob("*.py"):
        assert not {"methods", "losses"} & imports(path), path.name
    for path in (SOURCE / "methods").glob("*.py"):
        text = path.read_text()
        assert "make_views" not in text and "crop_specs" not in text and "csml.data" not in text, path.name
