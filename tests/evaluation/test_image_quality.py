"""Dark, flat, blurred, tiny and broken pictures among good ones."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter

from csml.data.folder_index import index_folder
from csml.data.images import ArrayImages, FolderImages, Subset
from csml.data.synthetic import synthetic
from csml.evaluation.image_quality import figures, image_quality


@pytest.fixture(scope="module")
def drawings() -> ArrayImages:
    return synthetic(64, 60, 2)[0]


def test_each_kind_is_found(tmp_path: Path, drawings: ArrayImages) -> None:
    good = drawings.read(0).resize((200, 150))
    pictures = {
        "blurred": good.filter(ImageFilter.GaussianBlur(8)),
        "dark": good.point(lambda value: value // 6),
        "flat": Image.new("RGB", (90, 90), (120, 30, 60)),
        "good": good,
        "shape": good.resize((600, 60)),
        "tiny": good.resize((20, 20)),
    }
    for name, picture in pictures.items():
        picture.save(tmp_path / f"{name}.png")
    (tmp_path / "unreadable.png").write_bytes(b"no picture")
    images = FolderImages(index_folder(tmp_path))
    quality = image_quality(images)
    for kind, ids in quality.odd().items():
        assert [images.name(id) for id in ids.tolist()] == [f"{kind}.png"]
    assert (quality.width[4], quality.height[4]) == (600, 60)
    assert quality.errors.keys() == {6}
    assert np.isnan(quality.brightness[6])


def test_clean_pictures_raise_no_alarm(drawings: ArrayImages) -> None:
    assert not any(len(ids) for ids in image_quality(drawings).odd().values())


def test_figures_of_a_chequerboard() -> None:
    board = np.indices((32, 32)).sum(0) % 2 * 255
    brightness, contrast, sharpness = figures(Image.fromarray(board.astype(np.uint8)))
    assert brightness == pytest.approx(0.5)
    assert contrast == pytest.approx(0.5)
    assert sharpness == pytest.approx(2.0, rel=0.01)  # each pixel differs from the mean of its neighbours by 1


def test_a_subset_has_the_figures_of_its_images(drawings: ArrayImages) -> None:
    whole, part = image_quality(drawings), image_quality(Subset(drawings, np.array([4, 9])))
    assert part.sharpness.tolist() == whole.sharpness[[4, 9]].tolist()
