"""The saved index against faiss, and when it is made anew."""

from pathlib import Path

import faiss
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from csml.config import HardwareConfig, ImagesConfig
from csml.data.images import ArrayImages
from csml.data.loading import fabric_for
from csml.evaluation import search_index as index_module
from csml.evaluation.features import extract_features
from csml.evaluation.search_index import SearchIndex, open_index
from csml.models.backbones import build_backbone

CONFIG = ImagesConfig(size=32, workers=0)


@pytest.fixture
def images() -> ArrayImages:
    pixels = np.random.default_rng(0).integers(0, 256, (50, 32, 32, 3), dtype=np.uint8)
    return ArrayImages(pixels, np.zeros(50, np.int64), ("a",), "noise")


def opened(folder: Path, images: ArrayImages, seed: int = 0) -> SearchIndex:
    torch.manual_seed(seed)
    fabric = fabric_for(images, 0, HardwareConfig(threads=1))
    return open_index(folder, build_backbone("tiny"), images, CONFIG, fabric)


@pytest.mark.parametrize("values", [1, 300, 1 << 19])
def test_equal_to_faiss_in_half_precision(values: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "_VALUES", values)  # rows at once: 1, 4, all
    generator = torch.Generator().manual_seed(0)
    features = F.normalize(torch.randn(500, 64, generator=generator), dim=1)
    queries = torch.randn(7, 64, generator=generator)
    theirs = faiss.IndexScalarQuantizer(64, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
    theirs.train(features.numpy())
    theirs.add(features.numpy())
    ids, similarities = SearchIndex(features.half()).search(queries, 20)
    expected_similarities, expected = theirs.search(F.normalize(queries, dim=1).numpy(), 20)
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_allclose(similarities, expected_similarities, atol=1e-5)


def test_all_rows_can_be_asked_for_and_zeros_are_near_nothing() -> None:
    features = torch.eye(5, dtype=torch.float16)
    features[3] = 0
    ids, similarities = SearchIndex(features).search(torch.tensor([[1.0, 0.1, 0, 9, 0]]), 5)
    assert sorted(ids[0].tolist()) == [0, 1, 2, 3, 4]
    assert similarities[0, ids[0].tolist().index(3)] == 0


def test_the_index_has_the_features_of_the_images(tmp_path: Path, images: ArrayImages) -> None:
    index = opened(tmp_path, images)
    torch.manual_seed(0)
    fabric = fabric_for(images, 0, HardwareConfig(threads=1))
    features = extract_features(build_backbone("tiny"), images, CONFIG, fabric).by_stage[4]
    assert torch.equal(index.features, F.normalize(features, dim=1).half())
    assert index.search(features[9:10], 1)[0].tolist() == [[9]]


def test_made_once_and_again_for_other_weights(tmp_path: Path, images: ArrayImages) -> None:
    opened(tmp_path, images)
    (file,) = tmp_path.iterdir()
    before = file.stat().st_mtime_ns
    opened(tmp_path, images)
    assert file.stat().st_mtime_ns == before
    opened(tmp_path, images, seed=1)
    (other,) = tmp_path.iterdir()
    assert other != file


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY\x01\x00", b"no array"])
def test_a_damaged_index_is_made_anew(tmp_path: Path, images: ArrayImages, damage: bytes) -> None:
    whole = opened(tmp_path, images).features.clone()
    (file,) = tmp_path.iterdir()
    file.write_bytes(damage)
    assert torch.equal(opened(tmp_path, images).features, whole)


def test_an_index_of_faiss_makes_room(tmp_path: Path, images: ArrayImages) -> None:
    for name in ("index.faiss", "index.json", "names.txt"):
        (tmp_path / name).write_text("of csml 0.1")
    opened(tmp_path, images)
    assert [file.suffix for file in tmp_path.iterdir()] == [".npy"]
