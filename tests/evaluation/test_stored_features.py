"""Features that are kept: what the cache has is what the network would say, and nothing else."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from conftest import noise_photos
from csml.config import HardwareConfig, ImagesConfig
from csml.data.concat import ConcatImages
from csml.data.failures import Failures
from csml.data.folders import folder_images
from csml.data.images import FolderImages, Subset
from csml.data.loading import fabric_for
from csml.evaluation import features as features_module
from csml.evaluation import stored_features as module
from csml.evaluation.features import Features, extract_features, pieces
from csml.evaluation.stored_features import features_folder, stored_batches, stored_features
from csml.models.backbones import build_backbone

CONFIG = ImagesConfig(size=32, workers=0)


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderImages:
    monkeypatch.setenv("CSML_CACHE", str(tmp_path / "cache"))
    noise_photos(tmp_path / "photos", 20)
    return folder_images(tmp_path / "photos", CONFIG, classes=None)


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)
    return build_backbone("nano")


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images the network was applied to, call by call."""
    counts: list[int] = []
    original = module.extract_features

    def counted(backbone, images, *rest, **more):  # type: ignore[no-untyped-def]
        counts.append(len(images))
        return original(backbone, images, *rest, **more)

    monkeypatch.setattr(module, "extract_features", counted)
    return counts


def features(net: nn.Module, images, config: ImagesConfig = CONFIG, stages: tuple[int, ...] = (4,)) -> Features:  # type: ignore[no-untyped-def]
    fabric = fabric_for(images, 0, HardwareConfig(threads=1))
    return stored_features(net, images, config, fabric, stages)


def test_the_second_time_nothing_is_computed_and_nothing_differs(
    net: nn.Module, photos: FolderImages, seen: list[int]
) -> None:
    first, again = features(net, photos), features(net, photos, stages=(2, 4))
    fresh = extract_features(net, photos, CONFIG, fabric_for(photos, 0, HardwareConfig(threads=1)), stages=(2, 4))
    assert seen == [20]
    assert torch.equal(first.by_stage[4], again.by_stage[4]) and again.good.all()
    for stage in (2, 4):
        assert torch.allclose(again.by_stage[stage], fresh.by_stage[stage], atol=1e-5)


def test_parts_of_the_images_are_completed(net: nn.Module, photos: FolderImages, seen: list[int]) -> None:
    some = Subset(photos, np.array([3, 1, 17]))
    expected = features(net, photos).by_stage[4]
    for file in features_folder().glob("*/*.npz"):
        file.unlink()
    assert torch.allclose(features(net, some).by_stage[4], expected[[3, 1, 17]], atol=1e-5)
    assert torch.allclose(features(net, photos).by_stage[4], expected, atol=1e-5)
    assert torch.allclose(features(net, ConcatImages([some, photos])).by_stage[4][3:], expected, atol=1e-5)
    assert seen == [20, 3, 17]


def test_other_weights_sizes_and_crops_are_other_features(
    net: nn.Module, photos: FolderImages, seen: list[int]
) -> None:
    torch.manual_seed(1)
    features(net, photos)
    features(build_backbone("nano"), photos)
    features(net, photos, ImagesConfig(size=40, workers=0))
    features(net, photos, ImagesConfig(size=32, eval_crop=1.0, workers=0))
    features(net, photos, ImagesConfig(size=32, eval_size=48, workers=0))
    assert seen == [20] * 5


def test_features_are_those_of_the_size_for_use(net: nn.Module, photos: FolderImages, seen: list[int]) -> None:
    """Not of the size of the crops that are learnt from; a smaller one than that counts as none."""
    large, small = ImagesConfig(size=48, workers=0), ImagesConfig(size=32, workers=0)
    expected = features(net, photos, large).by_stage[4]
    assert torch.equal(features(net, photos, replace(small, eval_size=48)).by_stage[4], expected)
    assert torch.equal(features(net, photos, replace(large, eval_size=16)).by_stage[4], expected)
    assert seen == [20]


def test_large_images_go_through_in_smaller_batches(net: nn.Module, photos: FolderImages) -> None:
    crops = torch.rand(8, 3, 2048, 2048)
    assert [len(piece) for piece in pieces(crops, torch.device("cpu"))] == [1] * 8
    assert [len(piece) for piece in pieces(crops[..., :512, :512], torch.device("cpu"))] == [2] * 4
    assert [len(piece) for piece in pieces(crops, torch.device("cuda"))] == [8]
    fabric = fabric_for(photos, 0, HardwareConfig(threads=1, precision="32-true"))
    whole = extract_features(net, photos, CONFIG, fabric)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(features_module, "_PIXELS", 3 * 32**2)
        cut = extract_features(net, photos, CONFIG, fabric)
    assert torch.allclose(cut.by_stage[4], whole.by_stage[4], atol=1e-5)


def test_a_changed_file_is_looked_at_again(net: nn.Module, photos: FolderImages, seen: list[int]) -> None:
    features(net, photos)
    photos.path(4).write_bytes(photos.path(5).read_bytes())
    changed = features(net, photos).by_stage[4]
    assert seen == [20, 1]
    assert torch.allclose(changed[4], changed[5], atol=1e-5)


def test_an_image_that_cannot_be_read_is_told_every_time(net: nn.Module, photos: FolderImages) -> None:
    photos.path(4).write_bytes(b"no image")
    fabric = fabric_for(photos, 0, HardwareConfig(threads=1))
    for _ in range(2):
        failures = Failures(photos, 0.5)
        found = stored_features(net, photos, CONFIG, fabric, failures=failures)
        assert failures.ids == {4} and not found.good[4] and not found.by_stage[4][4].any()


@pytest.mark.parametrize("damage", [lambda content: b"", lambda content: content[: len(content) // 2]])
def test_a_damaged_file_is_computed_again(
    net: nn.Module, photos: FolderImages, seen: list[int], damage: Callable[[bytes], bytes]
) -> None:
    expected = features(net, photos).by_stage[4]
    (file,) = features_folder().glob("*/*.npz")
    file.write_bytes(damage(file.read_bytes()))
    assert torch.equal(features(net, photos).by_stage[4], expected)
    assert seen == [20, 20]


def test_batches_come_from_the_same_place(net: nn.Module, photos: FolderImages, seen: list[int]) -> None:
    expected = features(net, photos).by_stage[4]
    fabric = fabric_for(photos, 0, HardwareConfig(threads=1))
    batches = list(stored_batches(net, photos, CONFIG, fabric, batch_size=8))
    assert torch.equal(torch.cat([batch.by_stage[4] for batch in batches]), expected)
    assert [len(batch.ids) for batch in batches] == [8, 8, 4] and seen == [20]


def test_the_oldest_make_room(
    net: nn.Module, photos: FolderImages, seen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    features(net, photos)
    (file,) = features_folder().glob("*/*.npz")
    monkeypatch.setattr(module, "_MOST", int(2.5 * file.stat().st_size))
    for size in (40, 48):
        features(net, photos, ImagesConfig(size=size, workers=0))
    assert len(list(features_folder().glob("*/*.npz"))) == 2 and not file.exists()
