"""The server of the workbench: what it answers, and what it leaves."""

import csv
import io
import json
import os
import shutil
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import csml as library
from conftest import csml
from csml.data.decode import Picture
from csml.data.image_names import path_from_here
from csml.explorer.opening import open_workbench
from csml.explorer.training import Training
from csml.reporting.runs import read_runs
from csml.runs.locks import only_writer
from runs_to_show import NASTY
from workbench_server import Server

pytest_plugins = "workbench_fixtures"


def picture(server: Server, id: int) -> bytes:
    buffer = io.BytesIO()
    server.bench.images.read(id).save(buffer, "PNG")
    return buffer.getvalue()


def wait_for_suggestions(server: Server) -> None:
    """They are computed in the background."""
    until = time.monotonic() + 60
    while server.bench.suggestions() is None:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_the_map_has_every_image_with_its_class_and_what_its_neighbours_say(server: Server) -> None:
    points = np.frombuffer(server.ask("/api/points")[1], np.float32).reshape(2, 60)
    assert points.min() >= 0 and points.max() <= 1
    summary = server.get("/api/summary")
    assert summary["count"] == 60
    assert [column["title"] for column in summary["columns"]] == ["class"]  # the tests have a folder of their own
    assert np.array_equal(np.frombuffer(server.ask("/api/column/0")[1], np.int32), server.bench.images.labels)
    wait_for_suggestions(server)
    assert np.frombuffer(server.ask("/api/column/suggested")[1], np.int32).min() >= 0
    assert np.frombuffer(server.ask("/api/column/entropy")[1], np.float32).min() >= 0


def test_images_are_found_by_examples_and_counter_examples(server: Server) -> None:
    features = server.bench.view.index.features.float()
    query = features[[7, 8]].mean(0) - 0.5 * features[30]
    similarity = features @ query / query.norm()
    similarity[[7, 8, 30]] = -2
    found = json.loads(server.post("/api/similar", {"positive": [7, 8], "negative": [30]})[1])
    assert found["ids"] == similarity.argsort(descending=True, stable=True)[:57].tolist()


@pytest.mark.parametrize("id", [0, 33])
def test_a_search_with_an_image_of_the_data_finds_it_first(server: Server, id: int) -> None:
    status, content, _ = server.ask("/api/search", "POST", picture(server, id))
    assert status == 200
    found = json.loads(content)
    assert found["ids"][0] == id and found["similarities"][0] == pytest.approx(1, abs=1e-3)


def test_images_are_found_by_name_and_described(server: Server) -> None:
    (id,) = server.get("/api/find?text=ONERROR")["ids"]
    (about,) = json.loads(server.post("/api/describe", {"ids": [id]})[1])
    assert about["name"] == f"arrow/{NASTY}"


def test_the_queue_asks_for_what_has_no_label(server: Server) -> None:
    first = server.get("/api/queue?n=5")
    assert len(set(first["ids"])) == 5 and len(first["notes"]) == 5
    server.post("/api/label", {"ids": first["ids"], "label": "x"})
    assert not set(server.get("/api/queue?n=55")["ids"]) & set(first["ids"])
    server.post("/api/undo", {})


def test_another_label_is_not_replaced_unless_that_is_said(server: Server) -> None:
    assert server.post("/api/label", {"ids": [1, 2], "label": "ring"})[0] == 200
    status, content = server.post("/api/label", {"ids": [1, 2, 3], "label": "donut"})
    assert status == 409 and json.loads(content) == {"changed": 0, "others": {"ring": 2}}
    assert set(server.explorer.labels.values()) == {"ring"}
    server.post("/api/label", {"ids": [1, 2, 3], "label": "donut", "existing": "keep"})
    assert sorted(server.explorer.labels.values()) == ["donut", "ring", "ring"]
    server.post("/api/label", {"labels": {"1": "donut", "2": None}, "existing": "replace"})
    assert sorted(server.explorer.labels.values()) == ["donut", "donut"]
    for _ in range(3):
        server.post("/api/undo", {})
    assert server.explorer.labels == {} and not server.explorer.labels_file.exists()


def test_what_is_known_is_exported_in_every_format(server: Server, tmp_path: Path) -> None:
    server.post("/api/label", {"labels": {"13": "moon", "0": "pfeil"}})
    server.post("/api/tag", {"ids": [13, 20], "tag": "dark"})
    names = server.bench.names
    text = {
        name: server.post("/api/export", {"format": name})[1].decode()
        for name in ("csv", "list", "jsonl", "coco", "fiftyone")
    }
    rows = list(csv.DictReader(io.StringIO(text["csv"])))
    paths = [path_from_here(server.bench.view.images, id) for id in (0, 13, 20)]
    assert [row["path"] for row in rows] == text["list"].splitlines() == paths
    assert all(Path(path).is_file() and path.endswith(names[id]) for path, id in zip(paths, (0, 13, 20), strict=True))
    assert [(row["label"], row["tags"], row["class"]) for row in rows][1] == ("moon", "dark", "crescent")
    lines = [json.loads(line) for line in text["jsonl"].splitlines()]
    assert lines[1]["label"] == "moon" and lines[2]["tags"] == ["dark"] and "label" not in lines[2]
    coco = json.loads(text["coco"])
    assert [image["file_name"] for image in coco["images"]] == [names[id] for id in (0, 13, 20)]
    words = {one["id"]: one["name"] for one in coco["categories"]}
    assert {one["image_id"]: words[one["category_id"]] for one in coco["annotations"]} == {1: "pfeil", 2: "moon"}
    assert json.loads(text["fiftyone"]) == {
        "classes": ["moon", "pfeil"], "labels": {names[13].removesuffix(".png"): 0, names[0].removesuffix(".png"): 1}
    }  # fmt: skip
    fifth = server.post("/api/export", {"format": "list", "ids": [5]})[1].decode()
    assert fifth.split() == [path_from_here(server.bench.view.images, 5)]
    server.post("/api/undo", {})
    server.post("/api/undo", {})


def test_lists_of_what_may_not_belong(server: Server) -> None:
    def ready(kind: str) -> dict[str, Any]:
        for _ in range(600):
            answer = server.get(f"/api/clean/{kind}?similarity=0.5")
            assert answer["problem"] is None
            if answer["found"] is not None:
                return dict(answer["found"])
            time.sleep(0.05)
        raise AssertionError(kind)

    groups = ready("duplicates")
    assert len(groups["ids"]) == len(set(groups["ids"])) == len(groups["notes"]) and set(groups["extra"]) < set(
        groups["ids"]
    )
    server.post("/api/label", {"labels": {str(id): server.bench.images.classes[id // 12] for id in range(60)}})
    server.post("/api/label", {"labels": {"3": "flower"}, "existing": "replace"})
    assert all(id < 60 for id in ready("wrong")["ids"])
    assert ready("unreadable")["ids"] == [] and ready("tiny")["ids"] == []
    for _ in range(600):
        if server.ask("/api/column/density")[0] == 200:
            break
        time.sleep(0.05)
    density = np.frombuffer(server.ask("/api/column/density")[1], np.float32)
    features = server.bench.view.index.features.float()
    nearest = (features @ features.T).fill_diagonal_(-1).topk(5).values.mean(1)
    assert torch.from_numpy(density.copy()) == pytest.approx(nearest, abs=1e-3)
    for _ in range(2):
        server.post("/api/undo", {})


def test_two_pages_of_a_run_never_tune_in_the_same_folder(server: Server) -> None:
    """Each once deleted what the other was making; what a dead worker left is deleted when it is old."""
    first, second = (Training(server.bench, server.bench.view.opened, 0)._next_tuned() for _ in range(2))
    assert first.root != second.root and first.root.exists() and second.root.exists()
    for run in (first, second):
        os.utime(run.root, (0, 0))
    with ThreadPoolExecutor() as pool, only_writer(first.root):  # a worker that lives; another thread asks
        os.utime(first.root, (0, 0))
        third = pool.submit(Training(server.bench, server.bench.view.opened, 0)._next_tuned).result()
        assert first.root.exists() and not second.root.exists() and third.root != first.root
    for run in (first, third):
        shutil.rmtree(run.root)


def test_training_needs_two_classes(server: Server) -> None:
    status, content = server.post("/api/train", {})
    assert status == 409 and b"two classes" in content


def test_a_large_photo_is_found_by_itself(tmp_path: Path, explored: Path) -> None:
    """JPEGs that are decoded at a part of their size, among many that are nearly the same."""
    rng = np.random.default_rng(0)
    base = np.asarray(Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((1600, 1200)))
    for number in range(12):
        noisy = base.astype(int) + rng.normal(0, 6, base.shape) + number
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(tmp_path / f"{number:02d}.jpg")
    shutil.copytree(explored / "csml", tmp_path / "run")
    burst, _ = open_workbench(read_runs([str(tmp_path / "run")])[0].moved_to(str(tmp_path)))
    for id in (0, 5, 11):
        number = burst.upload(Picture(tmp_path / f"{id:02d}.jpg"))
        best, similarity = burst.similar([], [], [number], 3)[0]
        assert best == id and similarity == pytest.approx(1, abs=1e-3)


def test_a_map_is_made_once_and_has_its_file(explored: Path, server: Server) -> None:
    server.bench.view.layout.finish()
    (file,) = (explored / "csml/explore").glob("map-*.npz")
    again, _ = open_workbench(read_runs([str(explored / "csml")])[0])
    assert again.view.layout.finished and np.array_equal(again.view.layout.points, server.bench.view.layout.points)
    file.write_bytes(b"damaged")
    fresh, _ = open_workbench(read_runs([str(explored / "csml")])[0])
    fresh.view.layout.finish()
    assert np.array_equal(fresh.view.layout.points, server.bench.view.layout.points)


def test_the_page_takes_the_paths_of_select(runs: Path, tmp_path: Path, server: Server) -> None:
    shutil.copytree(runs / "csml", tmp_path / "run")
    path, name = path_from_here(server.bench.images, 7), server.bench.images.name(7)
    assert path != name
    (tmp_path / "run/explore").mkdir(exist_ok=True)
    (tmp_path / "run/explore/labels.csv").write_text(f"path,label\n{path},ring\n")
    page, _ = open_workbench(read_runs([str(tmp_path / "run")])[0])
    assert page.store.labels() == {name: "ring"} and page.said().counts() == {"ring": 1}


def test_the_page_of_a_classifier_starts_with_the_labels_it_was_learnt_from(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "tuned", tmp_path / "tuned")
    (run,) = read_runs([str(tmp_path / "tuned")])
    with run.files.labels.open(newline="") as file:
        learnt = {row["path"]: row["label"] for row in csv.DictReader(file)}
    page, _ = open_workbench(run)
    assert page.store.labels() == learnt and sum(page.said().counts().values()) == len(learnt) == 30
    assert [action.about for action in page.store.history()] == ["30 labels this run was learnt from"]
    assert not {page.names[id] for id in page.next_to_label(30, "both")[0]} & learnt.keys()
    page.store.undo()
    again, _ = open_workbench(run)
    assert again.store.labels() == {} and len(again.store.history()) == 1


def test_labels_of_a_run_that_cannot_be_read_are_told(
    runs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(runs / "tuned", tmp_path / "tuned")
    (run,) = read_runs([str(tmp_path / "tuned")])
    run.files.labels.write_text("")
    page, _ = open_workbench(run)
    assert page.store.history() == [] and f"{run.files.labels} cannot be used" in caplog.text


def test_a_classifier_s_own_predictions_are_suggested(explored: Path, runs: Path) -> None:
    tuned, _ = open_workbench(read_runs([str(explored / "tuned")])[0])
    table = explored / "predictions.csv"
    assert csml("predict", str(explored / "tuned"), str(runs / "photos/train"), "--output", str(table)).returncode == 0
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    suggested = tuned.suggestions()
    assert suggested is not None
    assert [suggested.classes[label] for label in suggested.labels] == [row["label"] for row in rows]
    assert suggested.entropies == pytest.approx([float(row["entropy"]) for row in rows], abs=1e-2)


def test_a_picture_is_sent_whole_and_small(server: Server) -> None:
    whole = Image.open(io.BytesIO(server.ask("/image/3")[1]))
    assert np.array_equal(np.asarray(whole), np.asarray(server.bench.images.read(3)))
    assert Image.open(io.BytesIO(server.ask("/thumb/3")[1])).size == (128, 128)


def test_a_request_that_fails_is_answered_in_one_line(
    server: Server, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], cache: Path
) -> None:
    server.bench.store.save()
    wal = server.bench.store.file.with_name(f"{server.bench.store.file.name}-wal")
    wal.unlink(missing_ok=True)
    wal.mkdir()  # a full disk in effect
    status, content = server.post("/api/label", {"ids": [1], "label": "late"})
    wal.rmdir()
    assert (status, content.count(b"\n")) == (507, 0) and b"is the disk full" in content
    assert server.post("/api/label", {"ids": [1], "label": "late"})[0] == 200
    server.post("/api/undo", {})

    def wrong(*_: object) -> None:
        raise ZeroDivisionError("nobody foresaw this")

    monkeypatch.setattr(server.bench, "label", wrong)
    status, content = server.post("/api/label", {"ids": [1], "label": "late"})
    assert status == 500 and content.startswith(b"internal error: ZeroDivisionError: nobody foresaw this")
    assert Path(content.decode().rpartition(" ")[2]).is_relative_to(cache)
    assert "Traceback" not in capfd.readouterr().err


def test_the_page_stops_although_an_upload_never_ends(explored: Path) -> None:
    explorer = library.explore(explored / "csml", port=0, browser=False)
    server = Server(explorer)
    assert server.ask("/")[0] == 200
    with socket.create_connection(("127.0.0.1", server.port)) as upload:
        cookie = f"Cookie: csml-{server.port}={server.token}\r\n"
        head = f"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\n{cookie}Content-Length: 1000000\r\n\r\n"
        upload.sendall(head.encode() + b"the beginning")
        time.sleep(0.3)
        explorer.stop()
        assert not explorer._thread.is_alive()
    with pytest.raises(OSError):
        server.ask("/")
    assert explorer.address in repr(explorer) and explorer.selection == [] and explorer.labels == {}
