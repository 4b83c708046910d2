"""Tar files and WebDataset shards, read in any order without unpacking."""

import io
import json
import os
import pickle
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from csml.config import ImagesConfig
from csml.data import open_data, tars
from csml.data.images import source_of
from csml.data.open import DataSplits
from csml.errors import CsmlError


def png(colour: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (12, 10), (colour, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def write(path: Path, files: Mapping[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def opened(source: object, **settings: object) -> DataSplits:
    return open_data(str(source), ImagesConfig(**settings))  # type: ignore[arg-type]


def seen(data: DataSplits) -> list[tuple[str, int, str]]:
    """Name, colour and class of every training image."""
    images = data.train
    return [
        (images.name(id), images.read(id).getpixel((0, 0))[0], images.classes[label] if label >= 0 else "")
        for id, label in enumerate(images.labels)
    ]


def test_a_tar_of_a_folder_is_read_like_the_folder(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(6):
            pixels = rng.integers(0, 256, (30, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i}.png")
    with tarfile.open(tmp_path / "photos.tar", "w") as archive:
        archive.add(tmp_path / "photos", "photos")
    folder, packed = opened(tmp_path / "photos"), opened(tmp_path / "photos.tar")
    place = {packed.train.name(id): id for id in range(12)}
    ids = np.array([place[f"photos/{folder.train.name(id)}"] for id in range(12)])
    assert packed.train.classes == ("cat", "dog")
    assert packed.train.labels[ids].tolist() == folder.train.labels.tolist()
    for id in range(12):
        assert packed.train.read(int(ids[id])).tobytes() == folder.train.read(id).tobytes()
    assert packed.val is not None and len(packed.val) == 2


def test_shards_have_the_labels_beside_their_images(tmp_path: Path) -> None:
    write(tmp_path / "s-00.tar", {"a.png": png(1), "a.cls": b"10\n", "b.cls": b"2", "b.png": png(2), "b.txt": b"hi"})
    write(tmp_path / "s-01.tar", {"a.png": png(3), "a.json": b'{"label": 10}', "x.y.png": png(4), "x.json": b"{"})
    data = opened(f"{tmp_path}/s-{{00..01}}.tar")
    assert data.train.classes == ("2", "10")  # numbers in their order
    first = [("s-00.tar/a.png", 1, "10"), ("s-00.tar/b.png", 2, "2")]
    assert seen(data) == [*first, ("s-01.tar/a.png", 3, "10"), ("s-01.tar/x.y.png", 4, "")]
    assert "left out 1 file: 1 .txt" in data.notes
    assert opened(f"{tmp_path}/*.tar").train.fingerprint() == data.train.fingerprint()
    assert opened(f"{tmp_path}/*.tar", labels="none").train.classes == ()


def test_shards_named_train_and_val_are_used_as_such(tmp_path: Path) -> None:
    for part, colours in (("train", (1, 2, 3)), ("val", (4,)), ("test", (5,))):
        files = {f"{i}.png": png(i) for i in colours} | {f"{i}.cls": b"ab"[i % 2 : i % 2 + 1] for i in colours}
        write(tmp_path / f"set-{part}-0.tar", files)
    data = opened(f"{tmp_path}/*.tar")
    assert [colour for _, colour, _ in seen(data)] == [1, 2, 3]
    assert data.val is not None
    assert [data.val.read(id).getpixel((0, 0))[0] for id in range(len(data.val))] == [4]
    assert data.val.classes == ("a", "b") and data.val.labels.tolist() == [0]


def test_train_and_val_folders_inside_a_tar(tmp_path: Path) -> None:
    names = ("train/a/1.png", "train/b/1.png", "val/b/1.png", "val/b/2.png")
    data = opened(write(tmp_path / "x.tar", {f"top/{name}": png(i) for i, name in enumerate(names)}))
    assert data.val is not None
    assert data.train.labels.tolist() == [0, 1] and data.val.labels.tolist() == [1, 1]


def test_names_lead_nowhere_and_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    path = write(
        inside / "x.tar", {"../../evil.png": png(1), "/etc/evil.png": png(2), "./._a.png": b"", "b.png": png(3)}
    )
    monkeypatch.chdir(inside)
    before = set(tmp_path.rglob("*"))
    assert seen(opened(path)) == [("evil.png", 1, ""), ("etc/evil.png", 2, ""), ("b.png", 3, "")]
    assert set(tmp_path.rglob("*")) == before


def test_names_that_are_not_text(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar", {os.fsdecode(b"caf\xe9.png"): png(1), os.fsdecode(b"caf\xe9.cls"): b"\xff"})
    ((name, colour, _),) = seen(opened(path))
    assert (os.fsencode(name), colour) == (b"caf\xe9.png", 1)


def test_the_archive_is_searched_once_and_again_when_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "x.tar", {"a.png": png(1)})
    assert len(opened(path).train) == 1
    with monkeypatch.context() as patch:
        patch.setattr(tars, "_scan", lambda path: pytest.fail("searched again"))
        assert len(opened(path).train) == 1
    write(path, {"a.png": png(1), "b.png": png(2)})
    assert [colour for _, colour, _ in seen(opened(path))] == [1, 2]


def test_a_worker_reads_the_same_images(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar", {f"{i}.png": png(i) for i in range(2000)})
    images = source_of(opened(path).train)
    images.read(0)
    sent = pickle.dumps(images)
    assert len(sent) < 60_000  # places and labels, and a reference to the names
    assert pickle.loads(sent).read(7).getpixel((0, 0)) == (7, 0, 0)
    assert pickle.loads(sent).fingerprint() == images.fingerprint()


def test_more_archives_than_a_process_keeps_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tars, "_OPEN_FILES", 2)
    for i in range(5):
        write(tmp_path / f"{i}.tar", {"a.png": png(i)})
    images = opened(f"{tmp_path}/{{0..4}}.tar").train
    assert [images.read(id).getpixel((0, 0))[0] for id in (0, 1, 2, 3, 4, 0, 4)] == [0, 1, 2, 3, 4, 0, 4]


def test_an_archive_that_goes_away_is_an_unreadable_image(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar", {"a.png": png(1)})
    images = opened(path, labels="none").train
    fresh = pickle.loads(pickle.dumps(images))
    path.unlink()
    _, good = fresh.cut(np.array([0]), [(lambda rows, sizes: torch.zeros(1, 4), 4)])
    assert not good.any()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.tar", None, r"no image in .*x\.tar"),
        ("x.tar", b"", "cannot be read as a tar file"),
        ("x.tar", b"this is not an archive" * 100, "cannot be read as a tar file"),
        ("x.tar.gz", b"", "is compressed"),
        ("gone.tar", "missing", "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, name: str, content: bytes | str | None, message: str) -> None:
    if content is None:
        write(tmp_path / name, {})
    elif isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CsmlError, match=message) as caught:
        opened(tmp_path / name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("end", [100, 512, 1000, 3500])
def test_a_truncated_archive_is_refused(tmp_path: Path, end: int) -> None:
    path = write(tmp_path / "x.tar", {f"{i}.png": png(i).ljust(3000) for i in range(9)})
    path.write_bytes(path.read_bytes()[: 4 * (512 + 3072) + end])
    with pytest.raises(CsmlError, match="cannot be read as a tar file"):
        opened(path)


def test_a_json_label_may_be_anything(tmp_path: Path) -> None:
    values = ['{"class": "x"}', '"y"', "3", "[1]", "null", '{"label": null}', "{}", json.dumps({"label": "é"})]
    files = {f"{i}.json": value.encode() for i, value in enumerate(values)}
    files |= {f"{i}.png": png(i) for i in range(len(values))}
    found = seen(opened(write(tmp_path / "x.tar", files)))
    assert [name for _, _, name in found] == ["x", "y", "3", "", "", "", "", "é"]
