"""Grey, 16-bit and many-channel images, as bytes with as many channels as the network sees."""

import io
import pickle
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

import csml as library
from csml.config import AugmentationConfig, ImagesConfig
from csml.data import decode, open_data
from csml.data.bit_depth import Reading, as_bytes
from csml.data.datasets import images_of
from csml.data.images import Images
from csml.data.loading import center_batches
from csml.errors import CsmlError
from csml.models.backbones import build_backbone
from csml.models.first_convolution import with_channels
from csml.pixels import center_boxes, normalization_of
from csml.views.augment import augment, draw_params

RNG = np.random.default_rng(0)
H, W = 20, 24


def whole(images: Images, id: int = 0) -> np.ndarray:
    """`(H, W, C)`, through the path of training, for square images of side H."""
    (crops,), good = images.cut(np.array([id]), [(lambda rows, sizes: center_boxes(sizes, 1.0), H)])
    assert good.all()
    return crops[0].permute(1, 2, 0).numpy()


def opened(folder: Path, channels: int, **settings: object) -> Images:
    return open_data(str(folder), ImagesConfig(channels=channels, **settings)).train  # type: ignore[arg-type]


def values(channels: int, kind: type = np.uint8) -> np.ndarray:
    return RNG.integers(0, np.iinfo(kind).max, (H, H, channels), dtype=kind, endpoint=True)


def save(path: Path, pixels: np.ndarray) -> None:
    """`(H, W, C)` with the channels of a pixel beside each other."""
    planar = "contig" if pixels.shape[2] > 1 else None
    tifffile.imwrite(path, pixels.squeeze(), photometric="minisblack", planarconfig=planar)


@pytest.mark.parametrize("layout", ["planes", "samples", "pages", "plain array"])
@pytest.mark.parametrize("channels", [2, 4, 5, 13])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_a_tiff_of_many_channels_in_any_layout(tmp_path: Path, layout: str, channels: int, kind: type) -> None:
    pixels = values(channels, kind)  # (H, H, C)
    if layout == "pages":
        with tifffile.TiffWriter(tmp_path / "a.tif") as file:
            for c in range(channels):
                file.write(pixels[..., c], photometric="minisblack")
    elif layout == "plain array":
        tifffile.imwrite(tmp_path / "a.tif", pixels, photometric="minisblack", planarconfig=None)
    else:
        stored, planar = (pixels, "contig") if layout == "samples" else (np.moveaxis(pixels, 2, 0), "separate")
        tifffile.imwrite(tmp_path / "a.tif", stored, planarconfig=planar, photometric="minisblack")
    expected = pixels if kind == np.uint8 else np.round(pixels / 257).astype(np.uint8)
    np.testing.assert_array_equal(whole(opened(tmp_path, channels)), expected)


@pytest.mark.parametrize("compression", ["lzw", "deflate"])
def test_compressed_tiffs(tmp_path: Path, compression: str) -> None:
    pixels = values(5, np.uint16)
    tifffile.imwrite(
        tmp_path / "a.tif", pixels, photometric="minisblack", planarconfig="contig", compression=compression
    )
    np.testing.assert_array_equal(whole(opened(tmp_path, 5)), np.round(pixels / 257).astype(np.uint8))


def test_pages_and_transparency_without_tifffile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode.importlib.util, "find_spec", lambda name: None)
    pixels = values(5)
    pages = [Image.fromarray(pixels[..., c]) for c in range(5)]
    (tmp_path / "pages").mkdir()
    pages[0].save(tmp_path / "pages/a.tif", save_all=True, append_images=pages[1:])
    np.testing.assert_array_equal(whole(opened(tmp_path / "pages", 5)), pixels)
    (tmp_path / "rgba").mkdir()
    Image.fromarray(pixels[..., :4]).save(tmp_path / "rgba/a.png")
    np.testing.assert_array_equal(whole(opened(tmp_path / "rgba", 4)), pixels[..., :4])


def test_grey_from_any_file(tmp_path: Path) -> None:
    colour = Image.fromarray(values(3))
    colour.save(tmp_path / "a.png")
    np.testing.assert_array_equal(whole(opened(tmp_path, 1))[..., 0], np.asarray(colour.convert("L")))
    deep = values(1, np.uint16)[..., 0]
    (tmp_path / "deep").mkdir()
    Image.fromarray(deep).save(tmp_path / "deep/a.png")
    np.testing.assert_array_equal(whole(opened(tmp_path / "deep", 1))[..., 0], np.round(deep / 257).astype(np.uint8))
    np.testing.assert_array_equal(whole(opened(tmp_path / "deep", 3))[..., 2], np.round(deep / 257).astype(np.uint8))


@pytest.mark.parametrize(("channels", "suffix"), [(1, "png"), (3, "tif"), (5, "tif")])
def test_a_sensor_that_uses_a_part_of_its_range_is_stretched(tmp_path: Path, channels: int, suffix: str) -> None:
    dark = RNG.integers(100, 3000, (H, H, channels), dtype=np.uint16)
    if suffix == "png":
        Image.fromarray(dark[..., 0]).save(tmp_path / "a.png")
    else:
        tifffile.imwrite(tmp_path / "a.tif", dark, photometric="minisblack", planarconfig="contig")
    data = open_data(str(tmp_path), ImagesConfig(channels=channels))
    assert whole(data.train).max() <= 12
    assert any("16 bits become 8: 65 535 becomes 255" in note for note in data.notes)
    stretched = whole(opened(tmp_path, channels, sixteen_bit="percentile"))
    low, high = np.percentile(dark, (0.5, 99.5), axis=(0, 1))
    expected = ((dark - low) * 255 / (high - low)).round().clip(0, 255)
    assert np.abs(stretched - expected).max() <= 1
    assert (stretched.reshape(-1, channels).max(axis=0) == 255).all()


@given(
    arrays.arrays(
        st.sampled_from([np.uint8, np.uint16, np.int16, np.uint32, np.float32, np.float64, np.bool_]),
        st.sampled_from([(3, 4), (3, 4, 1), (2, 2, 5)]),
    ),
    st.sampled_from(["full", "percentile"]),
)
def test_any_numbers_become_bytes(numbers: np.ndarray, how: str) -> None:
    made = as_bytes(numbers, Reading(sixteen_bit=how))  # type: ignore[arg-type]
    assert made.dtype == np.uint8 and made.shape == numbers.shape


def test_other_channels_than_were_asked_for_are_one_line_before_training(tmp_path: Path) -> None:
    Image.fromarray(values(3)).save(tmp_path / "a.png")
    with pytest.raises(CsmlError, match=r"a\.png: it has 3 channels, and images.channels is 5"):
        opened(tmp_path, 5)
    (tmp_path / "tiff").mkdir()
    tifffile.imwrite(tmp_path / "tiff/a.tif", values(5), photometric="minisblack", planarconfig="contig")
    with pytest.raises(CsmlError, match=r"it has 5 channels, and images\.channels is 3"):
        opened(tmp_path / "tiff", 3)
    with pytest.raises(CsmlError, match="the images have 3 channels, not 4"):
        open_data("synthetic", ImagesConfig(channels=4, size=16, synthetic_train=4, synthetic_val=2))


def test_a_stack_of_volumes_is_refused(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((2, 3, H, H), np.uint8), imagej=True, metadata={"axes": "ZCYX"})
    with pytest.raises(CsmlError, match="expected height, width and channels"):
        opened(tmp_path, 6)


def test_a_missing_tifffile_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    real = builtins.__import__

    def without(name: str, *more: object) -> object:
        if name == "tifffile":
            raise ModuleNotFoundError("No module named 'tifffile'", name="tifffile")
        return real(name, *more)  # type: ignore[arg-type]

    tifffile.imwrite(tmp_path / "a.tif", values(5, np.uint16), photometric="minisblack", planarconfig="contig")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(CsmlError, match=r"pip install 'csml-vision\[tiff\]'"):
        opened(tmp_path, 5)


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_arrays_and_datasets_in_memory(channels: int) -> None:
    pixels = RNG.integers(0, 256, (6, H, H, channels), dtype=np.uint8)
    reading = Reading(channels)
    for given_pixels in (pixels, np.moveaxis(pixels, 3, 1), torch.from_numpy(pixels)):
        images = images_of(given_pixels, reading)
        np.testing.assert_array_equal(whole(images, 3), pixels[3])
        assert images.read(3).mode == "RGB"
    dataset = images_of([(torch.from_numpy(image).permute(2, 0, 1), 0) for image in pixels], reading)
    np.testing.assert_array_equal(whole(dataset, 2), pixels[2])
    assert dataset.read(2).mode == "RGB"
    with pytest.raises(CsmlError, match=r"expected images as \(N, H, W, 7\)"):
        images_of(pixels, Reading(7))


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_crops_are_augmented_normalised_and_seen_by_a_network(tmp_path: Path, channels: int) -> None:
    for i in range(4):
        save(tmp_path / f"{i}.tif", values(channels, np.uint16))
    images = pickle.loads(pickle.dumps(opened(tmp_path, channels)))
    (batch,) = center_batches(images, ImagesConfig(size=16, eval_crop=1.0), [np.arange(4)], workers=0)
    assert batch.crops.shape == (4, channels, 16, 16) and batch.good.all()
    assert images.read(0).mode == "RGB"
    config = AugmentationConfig(jitter=1, gray=1, hue=0.5)
    params = draw_params(4, config, torch.Generator().manual_seed(0))
    views = augment(batch.crops, params, 2.0)
    net = with_channels(build_backbone("nano"), channels)
    assert net(views).shape == (4, 128) and views.isfinite().all()


def test_neighbors_of_grey_images_are_found_with_weights_of_colour(tmp_path: Path) -> None:
    for i in range(4):
        save(tmp_path / f"{i}.tif", values(1))
    settings = {"images.channels": 1, "images.size": 16, "images.workers": 0, "hardware.threads": 1, "k": 2}
    (found,) = library.neighbors("random:nano", tmp_path / "0.tif", data=tmp_path, **settings).values()
    assert len(found) == 2


@pytest.mark.parametrize("channels", [1, 5])
def test_brightness_contrast_and_flip_of_other_channels_by_the_formula(channels: int) -> None:
    crops = torch.from_numpy(RNG.integers(0, 256, (1, channels, 8, 8), dtype=np.uint8))
    config = AugmentationConfig(jitter=1, gray=1, hue=0.5, saturation=3, blur=0, flip=1, brightness=0.5, contrast=0.5)
    params = draw_params(1, config, torch.Generator().manual_seed(3))
    x = crops.double().flip(3) / 255
    for operation in params.order[0].tolist():
        if operation == 0:
            x = (x * params.brightness.double()).clamp(0, 1)
        elif operation == 1:
            x = (params.contrast.double() * x + (1 - params.contrast.double()) * x.mean()).clamp(0, 1)
    mean, std = normalization_of(channels)
    assert (mean, std) == ((0.5,) * channels, (0.25,) * channels)
    torch.testing.assert_close(augment(crops, params, 2.0).double(), (x - 0.5) / 0.25, atol=1e-5, rtol=1e-5)


def test_heic_and_avif_files_are_read(tmp_path: Path) -> None:
    import pillow_heif

    colour = Image.fromarray(np.tile(np.linspace(0, 255, 64, dtype=np.uint8)[:, None, None], (1, 48, 3)))
    pillow_heif.from_pillow(colour).save(tmp_path / "a.heic", quality=95)
    colour.save(tmp_path / "b.avif", quality=95)
    images = open_data(str(tmp_path), ImagesConfig()).train
    assert [images.name(id) for id in range(2)] == ["a.heic", "b.avif"]
    for id in range(2):
        difference = np.asarray(images.read(id)).astype(int) - np.asarray(colour).astype(int)
        assert np.abs(difference).max() < 16
    content = io.BytesIO((tmp_path / "a.heic").read_bytes())
    assert decode.open_picture(content, Reading()).rgb().size == (48, 64)
