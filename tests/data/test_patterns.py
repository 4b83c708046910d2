"""Patterns with braces and stars stand for the paths that a shell, and WebDataset, would make of them."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csml.data.patterns import expand, expand_braces, fixed_part, is_pattern
from csml.errors import CsmlError

plain = st.text("abx._-", max_size=4)
numbers = st.tuples(st.integers(0, 120), st.integers(0, 120), st.integers(1, 4)).map(
    lambda three: f"{{{three[0]:0{three[2]}d}..{three[1]:0{three[2]}d}}}"
)
choices = st.lists(st.text("abx._-", min_size=1, max_size=3), min_size=2, max_size=3).map(
    lambda items: "{" + ",".join(items) + "}"
)
patterns = st.lists(plain | numbers | choices, min_size=1, max_size=3).map("".join).filter(bool)


def bash(pattern: str) -> list[str]:
    done = subprocess.run(["bash", "-fc", f"printf '%s\\n' {pattern}"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@given(pattern=patterns.filter(lambda pattern: not pattern.startswith("-")))
def test_braces_are_those_of_bash(pattern: str) -> None:
    assert expand_braces(pattern) == bash(pattern)


def test_inner_braces_and_braces_that_mean_nothing() -> None:
    assert expand_braces("a{b,c{1..2}}d") == ["abd", "ac1d", "ac2d"]
    assert expand_braces("{x}-{,}-{1..}") == ["{x}--{1..}", "{x}--{1..}"]
    assert expand_braces("a{b,c") == ["a{b,c"]
    assert not is_pattern("photos{1}") and is_pattern("photos{1,2}") and is_pattern("*.jpg")


@given(st.text("{},.0123*[]/", max_size=12))
def test_any_text_is_expanded_or_refused(text: str) -> None:
    try:
        assert expand_braces(text)
    except CsmlError as error:
        assert "\n" not in str(error)


def test_too_many_paths_are_refused() -> None:
    with pytest.raises(CsmlError, match="more than 1,000,000 paths"):
        expand_braces("{0..99999}{0..99999}.tar")
    with pytest.raises(CsmlError, match="more than 1,000,000 paths"):
        expand_braces("{0..99999999999}.tar")


def test_stars_match_files_and_braces_must_all_exist(tmp_path: Path) -> None:
    for name in ("b.tar", "a.tar", "c.txt"):
        (tmp_path / name).touch()
    assert expand(f"{tmp_path}/*.tar") == [tmp_path / "a.tar", tmp_path / "b.tar"]
    assert expand(f"{tmp_path}/{{b,a}}.tar") == [tmp_path / "b.tar", tmp_path / "a.tar"]
    with pytest.raises(CsmlError, match=r"there is no .*/d\.tar"):
        expand(f"{tmp_path}/{{a,d}}.tar")
    with pytest.raises(CsmlError, match="nothing matches"):
        expand(f"{tmp_path}/*.jpg")


def test_a_path_that_looks_like_a_pattern_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "holiday [2024]").mkdir()
    assert not is_pattern(str(tmp_path / "holiday [2024]"))


def test_the_fixed_part_is_the_folder_before_the_first_star() -> None:
    assert fixed_part("photos/*/1.jpg") == Path("photos")
    assert fixed_part("/x/y{1,2}/a.jpg") == Path("/x")
    assert fixed_part("/*.jpg") == Path("/")
    assert fixed_part("*.jpg") == Path()
    assert os.path.isabs(fixed_part("~/a*"))
