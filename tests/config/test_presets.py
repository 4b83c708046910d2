"""Presets: all are valid, and those named after the paper have its constants."""

import pytest

from csml.config import (
    BASES,
    DETECT_PRESETS,
    PRESETS,
    SECTIONS,
    TWINS,
    ContrastConfig,
    DetectConfig,
    FinetuneConfig,
    LinearConfig,
    MineConfig,
    PretrainConfig,
    SupervisedConfig,
    configure,
    detect_preset,
    preset_settings,
    settings_from_weights,
)
from csml.errors import CsmlError


def preset(name: str) -> PretrainConfig:
    return configure(PretrainConfig, preset_settings(name))


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_valid(name: str) -> None:
    config = preset(name)
    single = name.endswith(("-moco-v2", "-byol", "-simsiam")) and "-csml-" not in name
    assert config.views.cross_sample is not single
    assert config.model.stages == ((4,) if single else (2, 3, 4))
    framework = name.rpartition("-")[2]
    assert config.framework == (framework if framework in ("byol", "simsiam") else "contrast")
    assert config.views.symmetric is (config.framework != "contrast")


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(
    ("section", "schema"),
    list(zip(SECTIONS, (LinearConfig, SupervisedConfig, FinetuneConfig, MineConfig), strict=True)),
)
def test_the_sections_for_other_commands_are_valid_and_the_same_for_all_twins(
    base: str, section: str, schema: type[LinearConfig | SupervisedConfig | MineConfig]
) -> None:
    settings = preset_settings(base, section)
    configure(schema, settings)
    assert all(preset_settings(f"{base}-{twin}", section) == settings for twin in TWINS)


@pytest.mark.parametrize("name", DETECT_PRESETS)
def test_every_preset_of_detect_is_valid(name: str) -> None:
    config = configure(DetectConfig, detect_preset(name))
    assert config.detector.kind == ("c4" if "c4" in name else "fpn")


def test_the_imagenet_presets_are_the_paper_s_constants() -> None:
    for name, epochs in (("imagenet-200ep", 200), ("imagenet-800ep", 800)):
        config = preset(name)
        contrast = config.contrast
        assert (config.epochs, config.batch_size) == (epochs, 1024)
        assert config.optimizer.lr_per_256 * 1024 / 256 == pytest.approx(0.12)
        assert (contrast.queue_length, contrast.temperature, contrast.momentum) == (65536, 0.2, 0.999)
        assert (config.neighbors.k, config.neighbors.refresh_every) == (10, 5)
        assert (config.views.mix, config.views.mix_alpha) == ("cutmix", 1.0)
        assert config.model.backbone == "resnet50"


def test_the_byol_preset_is_the_paper_s_constants() -> None:
    config = preset("imagenet-300ep-csml-byol")
    assert (config.epochs, config.byol.momentum, config.optimizer.kind) == (300, 0.99, "lars")
    assert (config.model.hidden, config.model.dim, config.byol.predictor_hidden) == (4096, 256, None)
    augmentation = config.augmentation
    assert (augmentation.blur, augmentation.key_blur) == (1.0, 0.1)
    assert (augmentation.solarize, augmentation.key_solarize) == (0.0, 0.2)


def test_the_simsiam_preset_is_the_paper_s_constants() -> None:
    config = preset("imagenet-200ep-simsiam")
    optimizer = config.optimizer
    assert (optimizer.kind, optimizer.lr_per_256, optimizer.weight_decay) == ("sgd", 0.05, 1e-4)
    assert (optimizer.schedule, optimizer.momentum) == ("cosine", 0.9)
    assert (config.model.hidden, config.model.dim) == (2048, 2048)
    assert config.augmentation == preset("imagenet-200ep-moco-v2").augmentation


@pytest.mark.parametrize("name", [f"{base}-{twin}" for base in BASES for twin in TWINS if "moco" not in twin])
def test_a_twin_has_no_settings_of_other_frameworks(name: str) -> None:
    assert not any(key.startswith("contrast.") for key in preset_settings(name))


def test_unknown_presets_are_refused() -> None:
    with pytest.raises(CsmlError, match=r"^preset: 'imagnet' is unknown; choose one of .*imagenet-200ep"):
        preset_settings("imagnet")
    with pytest.raises(CsmlError, match=r"^preset: 'demo' is unknown; choose one of small-c4"):
        detect_preset("demo")


def test_the_defaults_are_the_paper_s() -> None:
    config = FinetuneConfig()
    assert (config.epochs, config.batch_size) == (60, 256)
    assert (config.optimizer.lr_per_256, config.head_lr_per_256, config.optimizer.momentum) == (1e-4, 10.0, 0.9)
    augmentation = config.augmentation
    assert (augmentation.jitter, augmentation.gray, augmentation.blur, augmentation.flip) == (0, 0, 0, 0.5)
    mining = MineConfig()
    assert (mining.epochs, mining.optimizer.lr_per_256, mining.head_lr_per_256) == (90, 1e-4, 1e-2)
    assert (mining.optimizer.schedule, mining.optimizer.milestones) == ("steps", (30, 60))
    assert mining.max_entropy == 1.0


def test_from_weights_a_variant_remains_its_method() -> None:
    def from_weights(name: str) -> PretrainConfig:
        framework = preset(name).framework
        return configure(PretrainConfig, preset_settings(name), settings_from_weights(framework, name))

    ours, moco, byol = (from_weights(name) for name in ("photos", "photos-moco-v2", "photos-byol"))
    assert ours.method.remembers and not ours.model.projection
    assert not moco.method.remembers and moco.model.projection and not moco.views.cross_sample
    assert moco.section(ContrastConfig).temperature == 0.2 and moco.section(ContrastConfig).empty_queue
    assert byol.framework == "byol" and byol.model.projection
    # What does not belong to a method is the same for all.
    assert ours.augmentation == moco.augmentation == byol.augmentation
    assert ours.model.frozen_stages == moco.model.frozen_stages == byol.model.frozen_stages
    assert ours.optimizer == moco.optimizer == byol.optimizer
