"""No tracked text names a folder of somebody's machine or the host of a package index: both are wrong elsewhere."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOTS = ("home", "root", "Users", "work", "tmp", "mnt", "media", "scratch", "workspace", "nfs", "srv", "opt")
FOLDER = re.compile(rf"(?:(?<![\w.~$}})*>/-])|(?<=file://))/(?:{'|'.join(ROOTS)})/\w|\b[A-Z]:\\+Users\b")
HOSTS = ("pypi" + r"\.", "pythonhosted" + r"\.", r"anaconda\.(?:org|com)", "arti" + "factory", "nexus" + "/repo")
HOST = re.compile("|".join(HOSTS), re.IGNORECASE)
IMAGE = {"Dockerfile"}
"""Its folders are those of the image."""


def tracked() -> list[str]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.split("\0") if name and (ROOT / name).exists()]


def test_no_tracked_text_names_a_folder_of_a_machine_or_the_host_of_an_index() -> None:
    names = tracked()
    assert {"README.md", "pyproject.toml", "src/csml/__init__.py"} <= set(names)
    found = []
    for name in names:
        try:
            text = (ROOT / name).read_text("utf-8")
        except UnicodeDecodeError:  # an image
            continue
        patterns = (HOST,) if name in IMAGE else (FOLDER, HOST)
        found += [f"{name}: {match[0]}" for pattern in patterns for match in pattern.finditer(text)]
    assert not found


@pytest.mark.parametrize("text", ["/{}/me/photos", "--data=/{}/x", "'/{}/x'", "file:///{}/x", "(/{}/a)"])
def test_such_a_folder_would_be_found(text: str) -> None:
    assert all(FOLDER.search(text.format(root)) for root in ROOTS)


@pytest.mark.parametrize("text", ["runs/{}/x", "https://example.org/{}/x", "~/{}/x", "$HOME/{}/x", "../{}/x"])
def test_a_relative_path_and_an_address_are_allowed(text: str) -> None:
    assert not any(FOLDER.search(text.format(root)) for root in ROOTS)


def test_such_a_host_would_be_found() -> None:
    assert HOST.search("--index-url https://" + "pypi" + ".org/simple") and HOST.search(
        "files." + "pythonhosted" + ".org"
    )
