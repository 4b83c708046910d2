"""`csml doctor` and `csml presets`, from Python and from the command line."""

import getpass
import platform
from pathlib import Path

import pytest

import csml as library
from conftest import csml
from csml.api import doctor as module
from csml.config import BASES, DETECT_PRESETS
from csml.release import VERSION


@pytest.fixture(scope="module")
def found() -> "module.Diagnosis":
    return library.doctor(seconds=0.1)


def test_it_says_what_a_bug_report_needs(found: "module.Diagnosis") -> None:
    assert found.facts["csml"]["version"] == VERSION == library.__version__
    assert found.facts["packages"]["torch"]
    assert {"features", "torch uses", "cores", "memory"} <= found.facts["processor"].keys()
    assert "GPU" in " ".join(found.facts["graphics"])
    assert found.facts["folders"].keys() == {"working folder", "csml's cache", "temporary files"}
    (speed,) = (values for name, values in found.facts.items() if name.startswith("speed"))
    assert "per second" in speed["training"] and "per second" in speed["decoding"]


def test_it_names_the_folders_it_checks_but_no_user_and_no_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, place = tmp_path / "somebody", tmp_path / "somebody" / "work"
    place.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CSML_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(place)
    found = library.doctor(seconds=0)
    assert found.facts["folders"]["working folder"].endswith("GiB free, ~/work")
    assert found.facts["folders"]["csml's cache"].endswith(f"GiB free, {tmp_path / 'cache'}")
    text = str(found)
    assert str(home) not in text
    assert platform.node() not in text or not platform.node()
    assert getpass.getuser() not in text.split()


def test_extras_are_installed_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = ["torch>=2", "no-such-thing>=1", 'jinja2; extra == "report"', 'csml-vision[report]; extra == "all"',
                'nothing-of-this-name>=3; extra == "weights"', 'pytest; extra == "test"']  # fmt: skip
    monkeypatch.setattr(module, "requires", lambda name: declared)
    found = library.doctor(seconds=0)
    assert found.facts["packages"]["no-such-thing"] == "missing"
    assert found.facts["extras"].keys() == {"report", "weights"}
    assert found.facts["extras"]["report"].startswith("jinja2 ")
    assert found.facts["extras"]["weights"] == "not installed (nothing-of-this-name missing)"
    assert any("no-such-thing is not installed" in problem for problem in found.problems)
    assert any("pip install 'csml-vision[weights]'" in problem for problem in found.problems)
    assert not any(name.startswith("speed") for name in found.facts)


def test_a_folder_that_cannot_be_written_to_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    monkeypatch.setenv("CSML_CACHE", str(file))
    assert any("cannot write to the csml's cache" in problem for problem in library.doctor(seconds=0).problems)


def test_the_command_prints_it() -> None:
    done = csml("doctor", "--seconds", "0")
    assert done.returncode == 0 and done.stdout.startswith("csml\n  version") and "problems\n" in done.stdout


def test_presets_have_a_line_each_of_their_own() -> None:
    found = library.presets()
    assert [preset.name for preset in found] == [*BASES, *DETECT_PRESETS]
    assert len({preset.about for preset in found}) == len(found)
    for preset in found:
        assert 20 < len(preset.about) <= 105 and preset.about.endswith("."), preset
    text = csml("presets").stdout
    assert all(f"  {preset.name} " in text and preset.about in text for preset in found)
    assert "-moco-v2" in text
