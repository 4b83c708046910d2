"""The package as people install it: everything is in the wheel, and the same files give the same bytes."""

import email
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from csml.release import DISTRIBUTION, VERSION, install_command

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Wheel and sdist, built twice."""
    folders = [tmp_path_factory.mktemp("dist") for _ in range(2)]
    for folder in folders:
        subprocess.run([sys.executable, str(ROOT / ".ci" / "dist.py"), str(folder)], check=True, capture_output=True)
    return folders


def wheel_of(folder: Path) -> Path:
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_two_builds_have_the_same_bytes(built: list[Path]) -> None:
    one, other = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in built)
    assert len(one) == 2 and one == other


def test_the_wheel_holds_every_file_of_the_source(built: list[Path]) -> None:
    source = ROOT / "src"
    tracked = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wanted = {os.path.relpath(ROOT / line, source) for line in tracked.splitlines() if (ROOT / line).exists()}
    assert {"csml/config/presets/demo.yaml", "csml/py.typed", "csml/reporting/page/report.html"} <= wanted
    with zipfile.ZipFile(wheel_of(built[0])) as wheel:
        assert {name for name in wheel.namelist() if ".dist-info/" not in name} == wanted


def test_the_wheel_says_what_it_is(built: list[Path]) -> None:
    with zipfile.ZipFile(wheel_of(built[0])) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith("METADATA"))
        metadata = email.message_from_bytes(wheel.read(name))
        (entries,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
        assert "csml = csml.cli:main" in wheel.read(entries).decode()
    assert (metadata["Name"], metadata["Version"]) == (DISTRIBUTION, VERSION)
    assert metadata["License-Expression"] == "Apache-2.0" and metadata["Author"] == "csml developers"
    assert metadata["Keywords"] and metadata.get_all("Classifier")


def test_one_name_everywhere() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    assert install_command("report") == "pip install 'csml-vision[report]'"
    extras = PROJECT["optional-dependencies"]
    for requirements in extras.values():
        assert not any(requirement.startswith("csml[") for requirement in requirements)
    (everything,) = extras["all"]
    named = everything.partition("[")[2].rstrip("]").split(",")
    assert set(named) == extras.keys() - {"all", "docs", "test", "wandb", "mlflow"}


def test_the_changelog_has_this_version() -> None:
    assert f"\n## {VERSION}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_documents_install_the_wheel_that_is_built(built: list[Path]) -> None:
    for page in ("README.md", "docs/start.md"):
        assert f"pip install 'dist/{wheel_of(built[0]).name}[all]'" in (ROOT / page).read_text()
