"""Packs: the same images as the folder they were made from, here or far away, and nothing in them is trusted."""

import json
import pickle
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

from conftest import SMALL_RUN, assert_same, csml, noise_photos
from csml.config import ImagesConfig
from csml.data.loading import center_batches, consecutive
from csml.data.open import open_data
from csml.data.packed import INDEX
from csml.errors import CsmlError
from csml.runs.checkpoint import load_newest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("packing") / "photos"
    for part, count in (("train", 30), ("val", 6)):
        for name in ("oak", "caf\udce9"):  # bytes that are no text
            noise_photos(root / part / name, count)
    (root / "train/oak/torn.jpg").write_bytes(b"no picture")
    return root


@pytest.fixture(scope="module")
def pack(folder: Path) -> Path:
    target = folder.parent / "pack"
    done = csml("pack", str(folder), "--output", str(target), "--shard_mb", "0.05")
    assert done.returncode == 0, done.stderr
    assert len(list(target.glob("train-*.arrow"))) > 3
    return target


def test_a_pack_has_the_same_images_under_the_same_ids(folder: Path, pack: Path) -> None:
    files, packed = (open_data(str(place), ImagesConfig(size=24, cache="off")) for place in (folder, pack))
    for ours, theirs in ((files.train, packed.train), (files.val, packed.val)):
        assert ours is not None and theirs is not None
        assert [ours.name(id) for id in range(len(ours))] == [theirs.name(id) for id in range(len(theirs))]
        assert np.array_equal(ours.labels, theirs.labels) and ours.classes == theirs.classes
        assert ours.fingerprint() == theirs.fingerprint()
        crops = ImagesConfig(size=24, eval_crop=0.9)
        batches = (center_batches(images, crops, consecutive(images, 16), workers=0) for images in (ours, theirs))
        for a, b in zip(*batches, strict=True):
            assert torch.equal(a.crops, b.crops) and torch.equal(a.good, b.good)
    assert not open_data(str(pack), ImagesConfig(labels="none")).train.classes


def test_workers_map_the_shards_instead_of_getting_them(pack: Path) -> None:
    images = open_data(str(pack), ImagesConfig()).train
    list(center_batches(images, ImagesConfig(size=16, eval_crop=1.0), consecutive(images, 16), workers=0))
    sent = pickle.dumps(images)
    assert len(sent) < 5000
    again = pickle.loads(sent)
    assert np.array_equal(np.asarray(again.read(40)), np.asarray(images.read(40)))
    batches = list(center_batches(images, ImagesConfig(size=16, eval_crop=1.0), consecutive(images, 16), workers=2))
    assert sum(len(batch.ids) for batch in batches) == 61


def test_a_run_goes_on_from_folder_to_pack(folder: Path, pack: Path, tmp_path: Path) -> None:
    """The pack stands for the folder: same ids, same batches, same weights."""
    words = [*SMALL_RUN, "--batch_size", "16", "--contrast.queue_length", "32", "--images.workers", "0"]
    for name, data in (("folder", folder), ("pack", pack)):
        done = csml("pretrain", *words, "--data", str(data), "--out", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
        assert "torn.jpg" in done.stderr
    states = [load_newest(tmp_path / name / "checkpoints") for name in ("folder", "pack")]
    assert states[0] is not None and states[1] is not None
    assert_same(states[0][1]["method"], states[1][1]["method"])


def test_a_pack_far_away_is_fetched_shard_by_shard(pack: Path) -> None:
    store = fsspec.filesystem("memory")
    store.put(str(pack), "/bucket/photos", recursive=True)
    here, far = (open_data(place, ImagesConfig()).train for place in (str(pack), "memory://bucket/photos"))
    local = far.pack.local  # type: ignore[attr-defined]
    assert not list(local.glob("train-0*.arrow"))
    assert np.array_equal(np.asarray(here.read(5)), np.asarray(far.read(5)))
    assert len(list(local.glob("train-0*.arrow"))) == 1


def test_what_is_damaged_on_the_way_is_refused(pack: Path) -> None:
    store = fsspec.filesystem("memory")
    store.put(str(pack), "/bucket/damaged", recursive=True)
    content = bytearray(store.cat("/bucket/damaged/train-00000.arrow"))
    content[len(content) // 2] ^= 1
    store.pipe("/bucket/damaged/train-00000.arrow", bytes(content))
    images = open_data("memory://bucket/damaged", ImagesConfig()).train
    with pytest.raises(CsmlError, match="its checksum is wrong"):
        images.read(0)


def changed(pack: Path, target: Path, change) -> Path:
    target.mkdir()
    for file in pack.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    index = json.loads((target / INDEX).read_text())
    change(index, target)
    (target / INDEX).write_text(json.dumps(index))
    return target


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda index, _: index.update(format=99), "is not a pack of this version"),
        (lambda index, _: index["parts"]["train"]["shards"][0].update(file="../secret"), "outside of its folder"),
        (lambda index, _: index["parts"]["train"]["shards"][0].update(rows=3), "instead of 3"),
        (lambda _, root: (root / "train-00000.arrow").write_bytes(b"ARROW1nonsense"), "cannot be read"),
        (lambda _, root: (root / "train-00000.arrow").unlink(), "cannot be read"),
        (lambda _, root: (root / "train-names.arrow").rename(root / "train-00000.arrow"), "cannot be read"),
    ],
)  # fmt: skip
def test_a_pack_that_was_tampered_with_is_one_line(pack: Path, tmp_path: Path, change, problem: str) -> None:
    with pytest.raises(CsmlError, match=problem):
        open_data(str(changed(pack, tmp_path / "bad", change)), ImagesConfig()).train.read(0)


def test_offsets_that_point_outside_are_refused(tmp_path: Path, pack: Path) -> None:
    def tamper(index, root: Path) -> None:
        file = root / "train-00000.arrow"
        rows = index["parts"]["train"]["shards"][0]["rows"]
        offsets = pa.py_buffer(np.array([0] + [10**12] * (rows - 1) + [64], dtype=np.int64).tobytes())
        array = pa.Array.from_buffers(pa.large_binary(), rows, [None, offsets, pa.py_buffer(b"x" * 64)])
        batch = pa.RecordBatch.from_arrays([array], names=["content"])
        with pa.OSFile(str(file), "wb") as opened, pa.ipc.new_file(opened, batch.schema) as writer:
            writer.write_batch(batch)

    with pytest.raises(CsmlError, match="cannot be read"):
        open_data(str(changed(pack, tmp_path / "bad", tamper)), ImagesConfig()).train.read(0)


def test_the_commands_that_look_at_all_images_take_a_pack(pack: Path, small_run: Path, tmp_path: Path) -> None:
    done = csml("embed", str(small_run), "--data", str(pack), "--output", str(tmp_path / "features.npy"))
    assert done.returncode == 0, done.stderr
    assert len(np.load(tmp_path / "features.npy")) == 61


def test_what_cannot_be_packed_is_one_line(pack: Path, folder: Path, tmp_path: Path) -> None:
    for words, problem in (
        ([str(tmp_path / "nowhere")], "there is no folder"),
        ([str(folder), "--output", str(pack)], "is a pack already"),
        ([str(folder), "--shard_mb", "0"], "shard_mb: above 0"),
    ):
        done = csml("pack", *words)
        assert done.returncode == 2 and problem in done.stderr and len(done.stderr.strip().splitlines()) == 1
    done = csml("knn", str(tmp_path), "--data", "memory://bucket/nowhere")
    assert done.returncode == 2


def test_a_picture_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    noise_photos(tmp_path / "photos", 3)
    Image.new("1", (20_000, 20_000)).save(tmp_path / "photos/bomb.png")
    assert csml("pack", str(tmp_path / "photos"), "--output", str(tmp_path / "pack")).returncode == 0
    images = open_data(str(tmp_path / "pack"), ImagesConfig()).train
    (batch,) = center_batches(images, ImagesConfig(size=16, eval_crop=1.0), consecutive(images, 16), workers=0)
    assert [images.name(id) for id in batch.ids[~batch.good].tolist()] == ["bomb.png"]
