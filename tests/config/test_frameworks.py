"""Frameworks: found by name, each with a section of its own."""

import subprocess
import sys
import textwrap
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import csml
from csml.config import (
    DEFAULT_FRAMEWORK,
    FRAMEWORKS,
    TWINS,
    ByolConfig,
    ContrastConfig,
    PretrainConfig,
    SimSiamConfig,
    configure,
    preset_settings,
)
from csml.errors import CsmlError


def test_frameworks_are_found_by_the_names_of_their_files() -> None:
    assert {"contrast": ContrastConfig, "byol": ByolConfig, "simsiam": SimSiamConfig} == FRAMEWORKS
    assert next(iter(FRAMEWORKS)) == DEFAULT_FRAMEWORK
    assert set(FRAMEWORKS) <= {field.name for field in fields(PretrainConfig)}


@pytest.mark.parametrize("name", list(FRAMEWORKS))
def test_the_chosen_framework_has_its_section(name: str) -> None:
    config = configure(PretrainConfig, {"framework": name})
    assert config.method == FRAMEWORKS[name]() == config.section(FRAMEWORKS[name])
    assert config.method.name == name


@pytest.mark.parametrize(
    ("name", "single", "cross"),
    [("contrast", "moco-v2", "csml"), ("byol", "byol", "csml-byol"), ("simsiam", "simsiam", "csml-simsiam")],
)
def test_a_framework_names_its_runs_and_presets(name: str, single: str, cross: str) -> None:
    method = FRAMEWORKS[name]()
    assert (method.run_name(cross_sample=False), method.run_name(cross_sample=True)) == (single, cross)
    assert single in TWINS
    assert (cross in TWINS) is (name != DEFAULT_FRAMEWORK)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"framework": "byol", "contrast.queue_length": 64},
            "contrast.queue_length: BYOL has no queue, no negatives and no split BatchNorm; leave it out, or start "
            "from a preset such as demo-byol",
        ),
        ({**preset_settings("demo-csml-byol"), "contrast.temperature": 0.1}, "contrast.temperature: BYOL has no queue"),
        ({**preset_settings("demo"), "framework": "byol"}, "contrast.momentum: BYOL has no queue"),
        ({**preset_settings("demo"), "framework": "simsiam"}, "contrast.momentum: SimSiam has no queue"),
        (
            {"byol.momentum": 0.9},
            "byol.momentum: MoCo has no such setting; leave it out, or start from a preset such as demo-byol",
        ),
        ({"simsiam.predictor_hidden": 9}, "simsiam.predictor_hidden: MoCo has no such setting"),
        ({"framework": "byol", "simsiam.predictor_hidden": 9}, "simsiam.predictor_hidden: BYOL has no such setting"),
        ({**preset_settings("demo-byol"), "byol.momentum": 2}, "byol.momentum: between 0 and 1, not 2"),
        ({"framework": "moco"}, "framework: one of contrast, byol, simsiam, not moco"),
    ],
)
def test_settings_of_another_framework_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(CsmlError) as caught:
        configure(PretrainConfig, settings)
    assert str(caught.value).startswith(message)


def test_a_new_file_is_a_new_framework(tmp_path: Path) -> None:
    """Its section, options and presets need no other change."""
    copy = tmp_path / "csml"
    source = Path(csml.__file__).parent
    subprocess.run(["cp", "-r", str(source), str(copy)], check=True)
    (copy / "config" / "frameworks" / "other.py").write_text(
        textwrap.dedent(
            '''
            from dataclasses import dataclass
            from typing import ClassVar

            from csml.config.fields import bounded
            from csml.config.frameworks.base import FrameworkConfig


            @dataclass(frozen=True)
            class OtherConfig(FrameworkConfig):
                """Another framework."""

                title: ClassVar[str] = "Other"
                single: ClassVar[str] = "other"
                cross: ClassVar[str] = "csml-other"

                strength: float = bounded(0.5, low=0, high=1)
                """How strong it is."""
            '''
        )
    )
    (copy / "config" / "presets" / "other.yaml").write_text("framework: other\nother:\n  strength: 0.7\n")
    script = """
        from csml.cli.options import Options
        from csml.config import PretrainConfig, configure, preset_settings
        config = configure(PretrainConfig, preset_settings("demo-csml-other"))
        assert config.method.strength == 0.7 and config.views.cross_sample
        assert not configure(PretrainConfig, preset_settings("photos-other")).views.cross_sample
        help = Options("pretrain", PretrainConfig, "", "csml pretrain").help("all")
        assert "--other.strength X" in help and "How strong it is. (between 0 and 1; default: 0.5)" in help
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, env={"PYTHONPATH": str(tmp_path)})
