"""The cache of decoded images: what it holds never changes a result."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter
from torch import Tensor

from csml.config import ImagesConfig, join_sources
from csml.data.bit_depth import COLOUR
from csml.data.decoded_cache import DecodedStore, decoded_folder, describe_cache, read_entry, store_for
from csml.data.folders import folder_images
from csml.data.images import FolderImages, Images, source_of, store_of
from csml.data.loading import _random_cut, worker_count
from csml.data.open import open_data
from csml.pixels import CROP_NUMBERS, CropSpec, center_boxes

SIZE = 32


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight smooth pictures, larger than crops need, and an empty cache."""
    monkeypatch.setenv("CSML_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for number in range(8):
        noise = Image.fromarray(rng.integers(0, 256, (30, 40, 3), dtype=np.uint8))
        smooth = noise.resize((400, 300), Image.Resampling.BICUBIC).filter(ImageFilter.GaussianBlur(3))
        smooth.save(tmp_path / f"{number}.png" if number % 2 else tmp_path / f"{number}.jpg", quality=95)
    return tmp_path


def opened(folder: Path, cache: Literal["auto", "on", "off"], size: int = SIZE, channels: int = 3) -> FolderImages:
    return folder_images(folder, ImagesConfig(size=size, cache=cache, channels=channels), classes=None)


def crops(images: FolderImages, size: int = SIZE) -> tuple[Tensor, Tensor]:
    """A random and the central crop of every image."""
    count = len(images)
    numbers = torch.rand(count, CROP_NUMBERS, generator=torch.Generator().manual_seed(1))
    random = _random_cut(numbers, CropSpec("a", 0, size, (0.2, 1.0), (0.75, 4 / 3)))
    (one, other), good = images.cut(np.arange(count), [random, (lambda rows, sizes: center_boxes(sizes, 1.0), size)])
    assert good.all()
    return one, other


def entries() -> list[Path]:
    return sorted(path for path in decoded_folder().glob("*/*"))


@pytest.mark.parametrize("channels", [3, 1])
def test_crops_agree_with_those_of_the_files(photos: Path, channels: int) -> None:
    for cached, from_file in zip(
        crops(opened(photos, "on", channels=channels)), crops(opened(photos, "off", channels=channels)), strict=True
    ):
        difference = (cached.float() - from_file.float()).abs()
        assert difference.mean() < 1.5
        assert difference.max() < 30
        assert from_file.float().std() > 10  # the pictures have something to differ in


def test_a_crop_is_the_same_whether_or_not_its_image_was_stored(photos: Path) -> None:
    first = crops(opened(photos, "on"))
    assert len(entries()) == 8
    again = crops(opened(photos, "on"))
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


def test_a_stored_image_is_read_without_its_file(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = crops(opened(photos, "on"))

    def refuse(*arguments: object) -> None:
        raise AssertionError("a file was opened")

    monkeypatch.setattr("csml.data.decoded_cache.open_picture", refuse)
    assert torch.equal(crops(opened(photos, "on"))[0], expected[0])


def flip_a_byte(content: bytes) -> bytes:
    return content[:1000] + bytes([content[1000] ^ 1]) + content[1001:]


@pytest.mark.parametrize(
    "damage",
    [lambda content: b"", lambda content: content[:10], lambda content: content[:-1], flip_a_byte,
     lambda content: content[:28] + bytes(len(content) - 28), lambda content: content + b"more"],
    ids=["empty", "header cut", "pixels cut", "bit flipped", "zeros", "longer"],
)  # fmt: skip
def test_a_damaged_entry_is_decoded_again(photos: Path, damage: Callable[[bytes], bytes]) -> None:
    expected = crops(opened(photos, "on"))
    for entry in entries():
        entry.write_bytes(damage(entry.read_bytes()))
        assert read_entry(entry, 3) is None
    assert torch.equal(crops(opened(photos, "on"))[0], expected[0])
    assert all(read_entry(entry, 3) is not None for entry in entries())


def test_a_changed_image_is_another_entry(photos: Path) -> None:
    crops(opened(photos, "on"))
    Image.new("RGB", (400, 300), "red").save(photos / "0.jpg", quality=95)
    os.utime(photos / "0.jpg", ns=(1, 1))
    changed = crops(opened(photos, "on"))[1][0]
    assert changed[0].min() > 240 and changed[1:].max() < 15


def test_a_crop_that_needs_more_detail_comes_from_the_file(photos: Path) -> None:
    crops(opened(photos, "on"))  # 96 pixels, and a crop of 200 is wanted
    assert torch.equal(crops(opened(photos, "on"), size=200)[1], crops(opened(photos, "off"), size=200)[1])


def test_images_that_are_small_are_stored_as_they_are(photos: Path) -> None:
    assert torch.equal(crops(opened(photos, "on", size=200), 200)[0], crops(opened(photos, "off", size=200), 200)[0])


def test_very_long_images_are_read_from_their_files(photos: Path) -> None:
    Image.new("RGB", (2000, 100), "blue").save(photos / "9.png")
    crops(opened(photos, "on"))
    assert len(entries()) == 8


def test_images_that_cannot_be_read_are_not_stored(photos: Path) -> None:
    (photos / "9.jpg").write_bytes((photos / "0.jpg").read_bytes()[:3000])
    (photos / "a.jpg").write_bytes(b"no image")
    images = opened(photos, "on")
    _, good = images.cut(np.arange(10), [(lambda rows, sizes: center_boxes(sizes, 1.0), SIZE)])
    assert good.tolist() == [True] * 8 + [False] * 2
    assert len(entries()) == 8


def test_auto_is_off_for_what_does_not_fit_and_says_so(photos: Path) -> None:
    config = ImagesConfig(size=224)
    assert store_for(config, 5000) is not None
    assert store_for(config, 1_281_167) is None
    assert store_for(ImagesConfig(size=224, cache="off"), 5) is None
    line = describe_cache(ImagesConfig(size=224, cache_gb=0.001), 4, photos.glob("*.jpg"))
    assert line is not None and "images.cache: off" in line and "cache_gb" in line


def stores(images: Images) -> list[DecodedStore | None]:
    """The cache of each folder or list among the images."""
    source = source_of(images)
    return [store_of(member) for member in getattr(source, "members", [source])]


@pytest.mark.parametrize("second", ["b", "a/val", "list.txt"])
def test_folders_that_fit_alone_are_not_cached_if_they_do_not_fit_together(photos: Path, second: str) -> None:
    for number, file in enumerate(sorted([*photos.glob("*.jpg"), *photos.glob("*.png")])):
        for folder in ("a/train", "a/val", "b"):
            place = photos / folder / ("cat" if number % 2 else "dog")
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, place)
    if second != "a/val":
        shutil.rmtree(photos / "a/val")
    (photos / "list.txt").write_text("".join(f"{path}\n" for path in sorted((photos / "b").glob("*/*"))))
    data = join_sources([str(photos / "a"), *([str(photos / second)] if second != "a/val" else [])])
    one = int(DecodedStore(96, COLOUR, 0).bytes_of(1))
    for room, cached in ((15, False), (16, True)):
        splits = open_data(data, ImagesConfig(size=SIZE, cache_gb=(room * one + 1) / 10**9))
        assert [store is not None for store in {*stores(splits.train), *stores(splits.val)}] == [cached]
        (line,) = [note for note in splits.notes if note.startswith("images.cache")]
        assert line.startswith("images.cache: 16 images are" if cached else "images.cache: off, because 16 decoded")


def test_the_oldest_entries_make_room(photos: Path) -> None:
    crops(opened(photos, "on"))
    for age, entry in enumerate(entries()):
        os.utime(entry, (1000 - age, 1000 - age))
    size = entries()[0].stat().st_size
    oldest = entries()[4:]
    store = opened(photos, "on").decoded
    assert store is not None
    DecodedStore(store.side, store.reading, most=store.bytes_of(2) + 4 * size).make_room(2)
    assert len(entries()) == 4 and not set(entries()) & set(oldest)


def test_the_data_at_hand_is_the_last_that_makes_room(photos: Path, tmp_path: Path) -> None:
    """Its entries are the oldest, and others have to go for an image that was added to it."""
    crops(opened(photos, "on"))
    ours = set(entries())
    for entry in ours:
        os.utime(entry, (1000, 1000))
    other = shutil.copytree(photos, tmp_path / "other", ignore=shutil.ignore_patterns("cache"))
    crops(opened(other, "on"))
    assert len(entries()) == 16
    size = next(iter(ours)).stat().st_size
    shutil.rmtree(other)
    shutil.copy(photos / "0.jpg", photos / "new.jpg")
    open_data(str(photos), ImagesConfig(size=SIZE, cache_gb=13 * size / 10**9))
    assert ours < set(entries()) and len(entries()) == 12
    assert min(entry.stat().st_mtime for entry in ours) > time.time() - 600  # used now
    open_data(str(photos), ImagesConfig(size=SIZE, cache="on", cache_gb=size / 10**9))
    assert set(entries()) == ours


def test_no_worker_is_needed_once_all_images_are_decoded(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("csml.data.loading.cores_each", lambda: 4)
    images = opened(photos, "auto")
    assert worker_count(images, None, "cpu") == 1
    crops(images)
    assert worker_count(images, None, "cpu") == 0
    assert worker_count(images, None, "cuda") == 3
    assert worker_count(images, 2, "cpu") == 2
    entries()[0].unlink()
    assert worker_count(images, None, "cpu") == 1
