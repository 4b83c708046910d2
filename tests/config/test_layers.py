"""Layers of settings: one over the other, from anywhere, with one clear line for every mistake."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from csml.config import (
    COMMAND_LINE,
    PRESETS,
    DetectConfig,
    FinetuneConfig,
    ImagesConfig,
    KnnConfig,
    Layer,
    LinearConfig,
    MineConfig,
    PretrainConfig,
    SupervisedConfig,
    as_settings,
    check_against_data,
    configure,
    fitted_to_data,
    flatten,
    lay_over,
    nest,
    preset_settings,
    read_config_file,
)
from csml.errors import CsmlError

words = st.text("abcdef_", min_size=1, max_size=5)
trees = st.recursive(
    st.dictionaries(words, st.integers() | st.lists(st.integers()) | st.none(), min_size=1, max_size=4),
    lambda inner: st.dictionaries(words, inner, min_size=1, max_size=3),
    max_leaves=8,
)
GIVEN: dict[str, st.SearchStrategy[Any]] = {
    "epochs": st.integers(1, 10**6),
    "seed": st.integers(0, 2**32 - 1),
    "data": st.text("abc/ 01", min_size=1),
    "out": st.none() | st.text("abc01", min_size=1),
    "images.size": st.integers(300, 16384),
    "images.sample": st.none() | st.integers(2, 1000),
    "views.mix": st.sampled_from(["cutmix", "mixup", "none"]),
    "views.mix_per_sample": st.booleans(),
    "model.stages": st.sampled_from([[4], [2, 4], [1, 2, 3, 4]]),
    "augmentation.crop_scale": st.none() | st.floats(0.01, 1).map(lambda low: [low, 1.0]),
    "optimizer.lr_per_256": st.floats(1e-9, 100),
    "contrast.temperature": st.floats(1e-3, 10),
    "neighbors.k": st.integers(1, 100),
}
some_settings = st.fixed_dictionaries({}, optional=GIVEN)


def refused(*layers: Layer | dict[str, Any], schema: type[Any] = PretrainConfig) -> str:
    with pytest.raises(CsmlError) as caught:
        configure(schema, *layers)
    message = str(caught.value)
    assert "\n" not in message
    return message


@given(trees)
def test_nest_undoes_flatten(tree: dict[str, Any]) -> None:
    assert nest(flatten(tree)) == tree


@given(some_settings)
def test_a_config_is_built_again_from_its_settings(settings: dict[str, Any]) -> None:
    config = configure(PretrainConfig, settings)
    assert configure(PretrainConfig, as_settings(config)) == config
    assert configure(PretrainConfig, flatten(as_settings(config))) == config
    assert configure(PretrainConfig, yaml.safe_load(yaml.safe_dump(as_settings(config)))) == config
    assert pickle.loads(pickle.dumps(config)) == config


@given(st.lists(some_settings, max_size=4))
def test_later_layers_win_and_layers_can_be_nested_or_dotted(layers: list[dict[str, Any]]) -> None:
    together: dict[str, Any] = {}
    for layer in layers:
        together |= layer
    mixed = [nest(layer) if number % 2 else layer for number, layer in enumerate(layers)]
    assert configure(PretrainConfig, *mixed) == configure(PretrainConfig, together)


@given(some_settings, some_settings)
def test_layers_with_different_keys_can_change_places(one: dict[str, Any], two: dict[str, Any]) -> None:
    two = {key: value for key, value in two.items() if key not in one}
    assert configure(PretrainConfig, one, two) == configure(PretrainConfig, two, one)


def test_nested_and_dotted_keys_and_settings_objects_go_together() -> None:
    config = configure(PretrainConfig, {"images": {"size": 64}, "images.eval_crop": 1, "neighbors": {"k": 5}})
    assert (config.images.size, config.images.eval_crop, config.neighbors.k) == (64, 1.0, 5)
    assert configure(PretrainConfig, {"images": ImagesConfig(size=64)}).images == ImagesConfig(size=64)


def test_a_section_keeps_the_defaults_of_its_command() -> None:
    assert configure(SupervisedConfig, {"optimizer.momentum": 0.8}).optimizer.lr_per_256 == 0.1
    assert configure(FinetuneConfig, {"augmentation": {"flip": 0}}).augmentation.crop_scale == (0.08, 1.0)
    assert configure(MineConfig, {"optimizer.milestones": [2]}).optimizer.schedule == "steps"


def test_settings_are_plain_values() -> None:
    settings = as_settings(configure(PretrainConfig, {"model.stages": (3, 4)}))
    assert settings["model"]["stages"] == [3, 4]
    assert lay_over({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}) == {"a": {"b": 3, "c": 2}}


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (
            Layer({"contrast.temprature": 1}, COMMAND_LINE),
            "unknown option --contrast.temprature; did you mean --contrast.temperature?",
        ),
        ({"contrast": {"temprature": 1}}, "unknown key contrast.temprature; did you mean contrast.temperature?"),
        (
            Layer({"contrast": {"temprature": 1}}, "config.yaml"),
            "config.yaml: unknown key contrast.temprature; did you mean contrast.temperature?",
        ),
        (
            Layer({"temperature": 1}, "preset demo"),
            "preset demo: unknown key temperature; did you mean contrast.temperature?",
        ),
        ({"k": 1}, "unknown key k; did you mean neighbors.k?"),
        ({"contrst": {"temperature": 1}}, "unknown key contrst; did you mean augmentation.contrast or contrast?"),
        ({"epochs.size": 1}, "unknown key epochs.size; did you mean "),
        ({1: 2}, "unknown key 1"),
        ({"": 2}, "unknown key ''"),
        ({"images": 5}, "images: expected settings such as images.size, got 5"),
        ({"images": [1]}, "images: expected settings such as images.size, got [1]"),
        ({"epochs": {"a": 1}}, "epochs: expected a whole number"),
    ],
)
def test_keys_that_do_not_exist_are_named_with_what_was_probably_meant(layer: Any, message: str) -> None:
    assert refused(layer).startswith(message)


@pytest.mark.parametrize(
    ("settings", "key", "right"),
    [
        ({"epochs": 0}, "epochs", "at least 1"),
        ({"batch_size": 1}, "batch_size", "at least 2"),
        ({"batch_size": 10**9}, "batch_size", "at most 1048576"),
        ({"seed": -1}, "seed", "0 or more"),
        ({"seed": 2**32}, "seed", "at most 4294967295"),
        ({"views.cross_sample": False}, "views.mix", "--views.mix none"),
        ({"views.mix_alpha": 0}, "views.mix_alpha", "above 0"),
        ({"model.backbone": "resnet51"}, "model.backbone", "resnet50"),
        ({"model.stages": [2, 5]}, "model.stages", "1, 2, 3, 4"),
        ({"model.stages": [2, 3]}, "model.stages", "4, the last stage"),
        ({"hardware.threads": 0}, "hardware.threads", "at least 1"),
        ({"hardware.devices": 0}, "hardware.devices", "at least 1"),
        ({"neighbors.k": -1}, "neighbors.k", "0 or more"),
        ({"neighbors.recall": 0}, "neighbors.recall", "above 0"),
        (
            {"neighbors.features": "online", "neighbors.warmup_epochs": 0},
            "neighbors.features",
            "--neighbors.warmup_epochs 1",
        ),
        ({"neighbors.refresh_every": 0}, "neighbors.refresh_every", "at least 1"),
        ({"contrast.temperature": 0}, "contrast.temperature", "above 0"),
        ({"contrast.momentum": 1.0}, "contrast.momentum", "below 1"),
        ({"contrast.queue_length": 0}, "contrast.queue_length", "at least 1"),
        ({"contrast.bn_splits": 0}, "contrast.bn_splits", "at least 1"),
        ({"augmentation.crop_scale": [0.5, 0.2]}, "augmentation.crop_scale", "a ≤ b"),
        ({"augmentation.gray": 2}, "augmentation.gray", "between 0 and 1"),
        ({"augmentation.key_blur": 1.5}, "augmentation.key_blur", "between 0 and 1"),
        ({"augmentation.hue": 0.6}, "augmentation.hue", "between 0 and 0.5"),
        ({"optimizer.lr_per_256": -1}, "optimizer.lr_per_256", "above 0"),
        ({"optimizer.kind": "adam"}, "optimizer.kind", "lars"),
        ({"images.size": 2}, "images.size", "at least 8 pixels"),
        ({"images.size": 10**6}, "images.size", "at most 16384"),
        ({"views.small_crops": -1}, "views.small_crops", "0 or more"),
        ({"views.small_crops": 2, "views.small_size": 300}, "views.small_size", "224"),
        ({"views.small_scale": [0, 2]}, "views.small_scale", "a ≤ b"),
        ({"views.positives": 0}, "views.positives", "at least 1"),
        ({"views.positives": 11}, "views.positives", "neighbors.k, which is 10"),
        ({**preset_settings("demo-moco-v2"), "views.positives": 2}, "views.positives", "--views.cross_sample true"),
    ],
)
def test_impossible_settings_of_pretraining_are_refused(settings: dict[str, Any], key: str, right: str) -> None:
    message = refused(settings)
    assert message.startswith(f"{key}: ") and right in message


@pytest.mark.parametrize(
    ("schema", "settings", "message"),
    [
        (KnnConfig, {"stage": 7}, "stage: between 1 and 4, not 7"),
        (KnnConfig, {"k": [0]}, "k: numbers, each at least 1, not [0]"),
        (LinearConfig, {"stages": [5]}, "stages: some of 1, 2, 3, 4, each once, not [5]"),
        (LinearConfig, {"epochs": 0}, "epochs: at least 1, not 0"),
        (SupervisedConfig, {"fraction": 0}, "fraction: above 0 and at most 1, not 0"),
        (SupervisedConfig, {"fraction": float("nan")}, "fraction: above 0 and at most 1, not nan"),
        (SupervisedConfig, {"holdout": 1}, "holdout: at least 0 and below 1, not 1"),
        (FinetuneConfig, {"head_lr_per_256": 0}, "head_lr_per_256: above 0, not 0"),
        (MineConfig, {"rounds": 0}, "rounds: at least 1, not 0"),
        (DetectConfig, {"scenes.max_side": 100}, "scenes.max_side: at least the longest short side, 800"),
        (DetectConfig, {"scenes.short_sides": [16]}, "scenes.short_sides: numbers, each at least 32 pixels"),
        (DetectConfig, {"detector.masks": True}, "detector.masks: needs --detector.kind fpn"),
        (
            DetectConfig,
            {"detector.kind": "fpn", "detector.anchors": [8]},
            "detector.anchors: one for each of the five levels",
        ),
        (DetectConfig, {"schedule.milestones": [2]}, "schedule.milestones: numbers, each above 0 and below 1"),
        (DetectConfig, {"batch_size": 1, "scenes.short_sides": [32]}, "batch_size: at least 2 for images below 64"),
        (DetectConfig, {"hardware.compile": True}, "hardware.compile: detectors cannot be compiled"),
        (DetectConfig, {"format": "voc"}, "data: synthetic scenes have no format"),
    ],
)
def test_impossible_settings_of_other_commands_are_refused(
    schema: type[Any], settings: dict[str, Any], message: str
) -> None:
    assert refused(settings, schema=schema).startswith(message)


def test_the_number_of_images_bounds_batch_and_neighbors() -> None:
    config = configure(PretrainConfig, {"batch_size": 64})
    check_against_data(config, 64)
    with pytest.raises(CsmlError, match=r"^batch_size: at most 63, the number of images, not 64"):
        check_against_data(config, 63)
    with pytest.raises(CsmlError, match=r"^neighbors\.k: less than 10, the number of images, not 10"):
        check_against_data(replace(config, batch_size=2), 10)


def test_a_preset_for_more_images_is_fitted_to_a_few() -> None:
    config = configure(PretrainConfig, {"batch_size": 64})
    assert fitted_to_data(config, 64) == config
    for images, batch_size, k in ((63, 31, 10), (7, 3, 6), (2, 2, 1)):
        fitted = fitted_to_data(config, images)
        check_against_data(fitted, images)
        assert (fitted.batch_size, fitted.neighbors.k) == (batch_size, k)
    with pytest.raises(CsmlError, match=r"^data: pre-training compares images with each other; give at least 2, not 1"):
        fitted_to_data(config, 1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"- 1\n- 2\n", "has no settings"),
        (b"just words", "has no settings"),
        (b"a: [", "is not YAML"),
        (b"epochs: 1\nepochs: 2\n", "epochs is given twice"),
        (b"\xff\xfe\x00", "is not a text file in UTF-8"),
        (b"a: \x00", "is not YAML"),
        (b"a: " + b"[" * 5000, "too deeply nested"),
        (b"a: !!python/object/apply:os.system [ls]", "is not YAML"),
        (b"a: " + b"9" * 5000, "is not YAML"),
        (b"x: 2024-13-45", "is not YAML"),
        (b"a: &a [1]\nb: [" + b"*a, " * 30 + b"1]", "aliases"),
        (b" " * 2**21, "larger than 1 MB"),
    ],
)
def test_files_that_are_no_settings_are_refused_in_one_line(tmp_path: Path, text: bytes, problem: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(text)
    with pytest.raises(CsmlError) as caught:
        read_config_file(file)
    assert str(caught.value).startswith(f"config: {file} ") and problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(CsmlError, match=r"there is no file .*nowhere\.yaml"):
        read_config_file(tmp_path / "nowhere.yaml")
    with pytest.raises(CsmlError, match="cannot be read"):
        read_config_file(tmp_path)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "images:\n", "images: {}\n"])
def test_empty_files_and_sections_set_nothing(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    assert configure(PretrainConfig, read_config_file(file)) == PretrainConfig()


def test_an_unknown_key_in_a_file_is_named_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("contrast:\n  temprature: 0.1\n")
    assert refused(read_config_file(file)).startswith(f"{file}: unknown key contrast.temprature")


@pytest.mark.parametrize("preset", PRESETS[:3])
def test_a_file_goes_between_preset_and_command_line(tmp_path: Path, preset: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("epochs: 7\nbatch_size: 33\n")
    layers = (preset_settings(preset), read_config_file(file), Layer({"batch_size": 44}, COMMAND_LINE))
    config = configure(PretrainConfig, *layers)
    assert (config.epochs, config.batch_size) == (7, 44)
    assert config.images.size == preset_settings(preset)["images.size"]
