"""Every kind of file people have."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from csml.data.decode import DecodeError, Picture, to_rgb


def read_rgb(path: Path) -> Image.Image:
    """The whole file."""
    return Picture(path).rgb()


def colour_picture() -> Image.Image:
    x = np.linspace(0, 255, 24, dtype=np.uint8)
    return Image.fromarray(
        np.stack([np.tile(x, (16, 1)), np.full((16, 24), 90), np.tile(x[::-1], (16, 1))], axis=2).astype("uint8")
    )


def pixels(picture: Image.Image) -> list[tuple[int, ...]]:
    return [tuple(pixel) for pixel in np.asarray(picture).reshape(-1, 3).tolist()]


def assert_close(read: Image.Image, expected: Image.Image, tolerance: int = 0) -> None:
    assert read.mode == "RGB"
    assert read.size == expected.size
    difference = np.asarray(read).astype(int) - np.asarray(expected.convert("RGB")).astype(int)
    assert np.abs(difference).max() <= tolerance


@pytest.mark.parametrize(
    ("name", "tolerance"), [("a.png", 0), ("a.bmp", 0), ("a.jpg", 40), ("a.webp", 60), ("a.tiff", 0)]
)
def test_common_formats(tmp_path: Path, name: str, tolerance: int) -> None:
    colour_picture().save(tmp_path / name)
    assert_close(read_rgb(tmp_path / name), colour_picture(), tolerance)


def test_grey(tmp_path: Path) -> None:
    colour_picture().convert("L").save(tmp_path / "a.png")
    assert_close(read_rgb(tmp_path / "a.png"), colour_picture().convert("L"))


def test_palette(tmp_path: Path) -> None:
    indexed = colour_picture().quantize(16)
    indexed.save(tmp_path / "a.png")
    assert_close(read_rgb(tmp_path / "a.png"), indexed)


def test_cmyk_jpeg(tmp_path: Path) -> None:
    colour_picture().convert("CMYK").save(tmp_path / "a.jpg", quality=100)
    assert_close(read_rgb(tmp_path / "a.jpg"), colour_picture(), tolerance=12)


def test_transparency_lies_on_white(tmp_path: Path) -> None:
    picture = Image.new("RGBA", (2, 1))
    picture.putpixel((0, 0), (200, 10, 10, 255))
    picture.putpixel((1, 0), (200, 10, 10, 0))
    picture.save(tmp_path / "a.png")
    assert pixels(read_rgb(tmp_path / "a.png")) == [(200, 10, 10), (255, 255, 255)]


def test_palette_with_a_transparent_colour(tmp_path: Path) -> None:
    picture = Image.new("P", (2, 1))
    picture.putpalette([0, 0, 0, 10, 200, 30])
    picture.putpixel((1, 0), 1)
    picture.save(tmp_path / "a.png", transparency=0)
    assert pixels(read_rgb(tmp_path / "a.png")) == [(255, 255, 255), (10, 200, 30)]


def test_sixteen_bits_are_scaled_not_cut_off(tmp_path: Path) -> None:
    deep = np.array([[0, 257 * 100, 65535]], dtype=np.uint16)
    Image.fromarray(deep).save(tmp_path / "a.png")
    assert pixels(read_rgb(tmp_path / "a.png")) == [(0, 0, 0), (100, 100, 100), (255, 255, 255)]


def test_floats_are_stretched() -> None:
    picture = to_rgb(Image.fromarray(np.array([[-1.0, 0.0, 1.0]], dtype=np.float32)))
    assert [pixel[0] for pixel in pixels(picture)] == [0, 128, 255]


def test_camera_orientation_is_applied(tmp_path: Path) -> None:
    picture = colour_picture()
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90° to view
    picture.save(tmp_path / "a.png", exif=exif)
    assert_close(read_rgb(tmp_path / "a.png"), picture.transpose(Image.Transpose.ROTATE_270))


def test_png_bytes_under_a_jpg_name(tmp_path: Path) -> None:
    colour_picture().save(tmp_path / "a.png")
    (tmp_path / "a.png").rename(tmp_path / "b.jpg")
    assert_close(read_rgb(tmp_path / "b.jpg"), colour_picture())


def broken_files(folder: Path) -> list[Path]:
    colour_picture().resize((200, 200)).save(folder / "whole.jpg")
    data = (folder / "whole.jpg").read_bytes()
    files = {"cut.jpg": data[: len(data) // 2], "empty.png": b"", "text.jpg": b"hello, I am not a picture"}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return [*(folder / name for name in files), folder / "missing.jpg"]


def test_what_cannot_be_decoded_is_one_kind_of_error_that_names_the_file(tmp_path: Path) -> None:
    for path in broken_files(tmp_path):
        with pytest.raises(DecodeError, match=path.name):
            read_rgb(path)


@given(st.data())
def test_damage_of_any_kind_is_a_decode_error_or_still_a_picture(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("damage") / "a.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6
    colour_picture().save(path, exif=exif)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 20))):
        content[data.draw(st.integers(2, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        assert read_rgb(path).mode == "RGB"
    except DecodeError as error:
        assert "a.jpg" in str(error)


def test_a_decompression_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    colour_picture().save(tmp_path / "a.png")
    with pytest.raises(DecodeError, match=r"a\.png"):
        read_rgb(tmp_path / "a.png")


def test_a_large_jpeg_is_decoded_smaller_when_little_of_it_is_needed(tmp_path: Path) -> None:
    row = np.linspace(0, 255, 800, dtype=np.uint8)
    picture = Image.fromarray(np.stack([np.tile(row, (600, 1))] * 3, axis=2))
    picture.save(tmp_path / "large.jpg", quality=95)
    opened = Picture(tmp_path / "large.jpg")
    assert (opened.height, opened.width) == (600, 800)
    assert opened.rgb(shrink=4).size == (200, 150)


def test_the_size_is_known_before_decoding_and_is_that_of_the_upright_picture(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    Image.new("RGB", (30, 20)).save(tmp_path / "turned.jpg", exif=exif)
    opened = Picture(tmp_path / "turned.jpg")
    assert (opened.height, opened.width) == (30, 20)
    assert opened.rgb().size == (20, 30)
