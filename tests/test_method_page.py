"""docs/method.md names code that exists, and the source points to sections that exist."""

import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "method.md").read_text()
SOURCES = sorted((ROOT / "src").rglob("*.py"))


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(csml(?:\.\w+)+)`", PAGE))))
def test_every_name_on_the_page_exists(name: str) -> None:
    pkgutil.resolve_name(name)


def test_the_page_names_the_code_of_each_section() -> None:
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        assert re.search(r"`csml\.\w+", section), section.splitlines()[0]


def test_pointers_in_the_source_lead_to_sections() -> None:
    anchors = {heading.lower().replace(" ", "-") for heading in re.findall(r"^## (.+)$", PAGE, flags=re.MULTILINE)}
    pointers = {
        (path.name, anchor) for path in SOURCES for anchor in re.findall(r"method\.md#([\w-]+)", path.read_text())
    }
    assert len(pointers) > 5
    assert {anchor for _, anchor in pointers} <= anchors, pointers
    assert set(re.findall(r"\]\(#([\w-]+)\)", PAGE)) <= anchors


def test_the_source_does_not_point_to_pages_outside_of_the_repository() -> None:
    for path in [*SOURCES, *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]:
        assert not re.search(r"METHOD( §|\.md)", path.read_text()), path
