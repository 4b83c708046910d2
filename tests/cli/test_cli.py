"""The command line: what it shows, and one clear line for every mistake."""

from pathlib import Path

import pytest
import torch
import yaml

from conftest import SMALL_RUN, configured, csml, csml_process
from csml.cli import COMMANDS
from csml.config.presets import PRESETS
from csml.errors import CsmlError
from csml.views import crop_specs


def refused(*words: str) -> str:
    """The one line with which `csml pretrain` refuses."""
    with pytest.raises(CsmlError) as caught:
        configured("pretrain", *words)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("words", "key", "right"),
    [
        (["--contrast.temprature", "0.1"], "--contrast.temprature", "--contrast.temperature"),
        (["--epochs", "many"], "epochs", "whole number"),
        (["--epochs", "0"], "epochs", "at least 1"),
        (["--views.mix", "blend"], "views.mix", "cutmix"),
        (["--views.cross_sample", "false"], "views.mix", "--views.mix none"),
        (["--views.mix_alpha", "0"], "views.mix_alpha", "above 0"),
        (["--model.backbone", "resnet51"], "model.backbone", "resnet50"),
        (["--model.stages", "[2, 5]"], "model.stages", "1, 2, 3, 4"),
        (["--model.stages", "[2, 3]"], "model.stages", "4"),
        (["--model.stages", "4"], "model.stages", "[3, 4]"),
        (["--hardware.threads", "0"], "hardware.threads", "at least 1"),
        (["--hardware.accelerator", "gpu"], "hardware.accelerator", "one of auto, cpu, cuda"),
        (["--hardware.accelerator", "mps"], "hardware.accelerator", "one of auto, cpu, cuda"),
        (["--neighbors.k", "-1"], "neighbors.k", "0 or more"),
        (["--neighbors.recall", "0"], "neighbors.recall", "above 0"),
        (
            ["--neighbors.features", "online", "--neighbors.warmup_epochs", "0"],
            "neighbors.features",
            "--neighbors.warmup_epochs 1",
        ),
        (["--neighbors.refresh_every", "0"], "neighbors.refresh_every", "at least 1"),
        (["--contrast.temperature", "0"], "contrast.temperature", "above 0"),
        (["--contrast.momentum", "1.0"], "contrast.momentum", "below 1"),
        (["--contrast.queue_length", "0"], "contrast.queue_length", "at least 1"),
        (["--contrast.bn_splits", "0"], "contrast.bn_splits", "at least 1"),
        (["--augmentation.crop_scale", "[0.5, 0.2]"], "augmentation.crop_scale", "a ≤ b"),
        (["--augmentation.gray", "2"], "augmentation.gray", "between 0 and 1"),
        (["--optimizer.lr_per_256", "-1"], "optimizer.lr_per_256", "above 0"),
        (["--images.size", "2"], "images.size", "at least 8"),
        (["--views.small_crops", "-1"], "views.small_crops", "0 or more"),
        (["--views.small_crops", "2", "--views.small_size", "300"], "views.small_size", "224"),
        (["--views.small_scale", "[0, 2]"], "views.small_scale", "a ≤ b"),
        (["--views.mix", "mixup", "--views.cross_sample", "false"], "views.mix", "--views.mix none"),
        (["--views.positives", "0"], "views.positives", "at least 1"),
        (["--views.positives", "11"], "views.positives", "neighbors.k, which is 10"),
        (["--preset", "demo-moco-v2", "--views.positives", "2"], "views.positives", "--views.cross_sample true"),
        (["--framework", "byol", "--contrast.queue_length", "64"], "contrast.queue_length", "no queue"),
        (["--preset", "demo-csml-byol", "--contrast.temperature", "0.1"], "contrast.temperature", "no queue"),
        (["--preset", "demo", "--framework", "byol"], "contrast.", "demo-byol"),
        (["--byol.momentum", "0.9"], "byol.momentum", "demo-byol"),
        (["--preset", "demo-byol", "--byol.momentum", "2"], "byol.momentum", "between 0 and 1"),
        (["--augmentation.key_blur", "1.5"], "augmentation.key_blur", "between 0 and 1"),
        (["--optimizer.kind", "adam"], "optimizer.kind", "lars"),
        (["--preset", "imagnet"], "preset", "imagenet-200ep"),
        (["--resume", "/nowhere"], "/nowhere", "run directory"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_key_and_what_would_be_right(
    words: list[str], key: str, right: str
) -> None:
    message = refused(*words)
    assert key in message
    assert right in message


def test_unknown_keys_and_wrong_types_in_a_file_are_named(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("contrast:\n  temprature: 0.1\n")
    assert "temprature" in refused("--config", str(file))
    file.write_text("epochs: many\n")
    assert "epochs" in refused("--config", str(file))
    assert "nowhere.yaml" in refused("--config", str(tmp_path / "nowhere.yaml"))


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["--neighbors.k", "300"], "neighbors.k"),
        (["--batch_size", "301"], "batch_size"),
        (["--data", "/nowhere"], "data"),
        pytest.param(
            ["--hardware.accelerator", "cuda"], "hardware.accelerator",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
)  # fmt: skip
def test_what_the_data_or_machine_makes_impossible_ends_at_once(tmp_path: Path, words: list[str], key: str) -> None:
    out = tmp_path / "run"
    done = csml("pretrain", *SMALL_RUN, *words, "--out", str(out))
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith(f"csml: error: {key}:")
    assert "Traceback" not in done.stderr


def test_an_empty_folder_is_refused_before_a_run_directory_is_made(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = csml("pretrain", "--data", str(tmp_path / "empty"), "--out", str(tmp_path / "run"))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "no image" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("words", [["knn", "--stage", "7"], ["knn", "--k", "[0]"], ["linear", "--stages", "[5]"]])
def test_impossible_protocols_are_refused_in_one_line(small_run: Path, words: list[str]) -> None:
    done = csml(words[0], str(small_run), *words[1:])
    assert done.returncode == 2
    assert done.stderr.startswith(f"csml: error: {words[1][2:]}: ")
    assert done.stderr.count("\n") == 1


def test_a_protocol_takes_data_and_pictures_from_the_run_but_its_schedule_from_the_paper(small_run: Path) -> None:
    config = configured("linear", str(small_run))
    assert (config.images.size, config.images.synthetic_train) == (32, 150)
    assert (config.epochs, config.batch_size, config.lr, config.milestones) == (100, 256, 30.0, (60, 80))


def test_the_preset_of_a_small_network_says_how_it_is_classified(small_run: Path) -> None:
    words = [str(small_run), "--preset", "demo-moco-v2"]
    assert configured("linear", *words).lr == 0.3
    assert configured("linear", *words, "--lr", "2").lr == 2


def test_help_names_every_command() -> None:
    done = csml_process("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in COMMANDS)
    assert "csml demo" in done.stdout


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_of_a_command_explains_its_options(command: str) -> None:
    done = csml(command, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: csml {command}")
    assert ("--data" in done.stdout) is (
        command not in ("predict", "export", "tables", "scenes", "presets", "doctor", "completion")
    )


def test_help_comes_from_the_docstrings() -> None:
    text = " ".join(csml("pretrain", "--help", "all").stdout.split())
    assert "Halve it if the loss diverges" in text
    assert "Epochs between two searches" in text


def test_an_unknown_command_is_one_line() -> None:
    done = csml("pretain")
    assert done.returncode == 2
    assert "pretrain" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_valid(preset: str) -> None:
    config = configured("pretrain", "--preset", preset)
    single = preset.endswith(("-moco-v2", "-byol", "-simsiam")) and "-csml-" not in preset
    assert config.views.cross_sample is not single
    from_weights = preset.startswith("photos") and not preset.startswith("photos-scratch")
    assert (config.model.weights is not None) is from_weights
    assert config.model.stages == ((4,) if single or from_weights else (2, 3, 4))
    assert config.framework == (preset.rpartition("-")[2] if preset.endswith(("byol", "simsiam")) else "contrast")
    assert config.views.symmetric is preset.endswith(("byol", "simsiam"))


def test_the_byol_preset_is_the_paper_s_constants() -> None:
    config = configured("pretrain", "--preset", "imagenet-300ep-csml-byol")
    assert (config.epochs, config.byol.momentum, config.optimizer.kind) == (300, 0.99, "lars")
    assert (config.model.hidden, config.model.dim, config.byol.predictor_hidden) == (4096, 256, None)
    augmentation = config.augmentation
    assert (augmentation.blur, augmentation.key_blur) == (1.0, 0.1)
    assert (augmentation.solarize, augmentation.key_solarize) == (0.0, 0.2)


def test_the_imagenet_presets_are_the_paper_s_constants() -> None:
    for preset, epochs in (("imagenet-200ep", 200), ("imagenet-800ep", 800)):
        config = configured("pretrain", "--preset", preset)
        assert (config.epochs, config.batch_size) == (epochs, 1024)
        assert config.optimizer.lr_per_256 * 1024 / 256 == pytest.approx(0.12)
        assert (config.contrast.queue_length, config.contrast.temperature, config.contrast.momentum) == (
            65536,
            0.2,
            0.999,
        )
        assert (config.neighbors.k, config.neighbors.refresh_every) == (10, 5)
        assert (config.views.mix, config.views.mix_alpha) == ("cutmix", 1.0)
        assert {spec.scale for spec in crop_specs(config)} == {(0.2, 1.0)}
        assert config.model.backbone == "resnet50"


def test_command_line_wins_over_file_and_file_over_preset(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("epochs: 7\nbatch_size: 33\n")
    config = configured("pretrain", "--preset", "demo", "--config", str(file), "--batch-size", "44", "--views.mix=none")
    assert (config.epochs, config.batch_size, config.images.size, config.views.mix) == (7, 44, 32, "none")


def test_print_config_prints_what_config_reads(tmp_path: Path) -> None:
    done = csml("pretrain", "--preset", "demo", "--neighbors.k", "3", "--print-config")
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["neighbors"]["k"] == 3
    file = tmp_path / "config.yaml"
    file.write_text(done.stdout)
    config = configured("pretrain", "--config", str(file))
    assert (config.neighbors.k, config.images.size) == (3, 32)
