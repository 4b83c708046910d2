"""The explorer: what it answers, what it refuses, and the page in a real browser."""

import csv
import http.client
import io
import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import uvicorn
from PIL import Image

import csml as library
from browser import browse, place_of
from conftest import csml
from csml.config import HardwareConfig, ImagesConfig
from csml.data.decode import Picture
from csml.data.images import ArrayImages
from csml.data.loading import fabric_for
from csml.data.open import DataSplits
from csml.evaluation.index import SearchIndex
from csml.explorer.server import build_app
from csml.explorer.state import Explored, _predictions, explore
from csml.models.backbones import build_backbone
from csml.reporting.runs import FinishedRun, read_runs
from csml.reporting.seen import Opened
from runs_to_show import NASTY, make_runs


@contextmanager
def serving(explored: Explored) -> Iterator[int]:
    """The server in a thread, on a port of its own."""
    door = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(build_app(explored), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [door]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield door.getsockname()[1]
    server.should_exit = True
    thread.join(timeout=20)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    return make_runs(tmp_path_factory.mktemp("explore"))


@pytest.fixture(scope="module")
def explored(runs: Path) -> Explored:
    return explore(read_runs([str(runs / "csml")])[0])


@pytest.fixture(scope="module")
def port(explored: Explored) -> Iterator[int]:
    with serving(explored) as port:
        yield port


def ask(
    port: int, path: str, method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.putheader("Content-Length", str(len(body or b"")))
    connection.endheaders(body)
    answer = connection.getresponse()
    return answer.status, answer.read(), dict(answer.getheaders())


def picture(explored: Explored, id: int) -> bytes:
    buffer = io.BytesIO()
    explored.images.read(id).save(buffer, "PNG")
    return buffer.getvalue()


def test_the_map_has_every_image_with_its_class_and_what_its_neighbours_say(port: int, explored: Explored) -> None:
    _, content, _ = ask(port, "/api/points")
    columns = np.frombuffer(content, np.float32).reshape(6, 60)
    assert columns[:2].min() >= 0 and columns[:2].max() <= 1
    assert np.array_equal(columns[2], explored.images.labels)
    assert columns[4].min() >= 0 and columns[5].min() >= 0
    summary = json.loads(ask(port, "/api/summary")[1])
    assert summary["count"] == 60 and len(summary["classes"]) == 5
    assert f"arrow/{NASTY}" in summary["names"]


def test_neighbours_are_those_of_the_features(port: int, explored: Explored) -> None:
    features = explored.index.features.float()
    similarity = features[7] @ features.T
    similarity[7] = -2
    found = json.loads(ask(port, "/api/neighbors/7")[1])
    assert [id for id, _ in found] == similarity.topk(24).indices.tolist()


@pytest.mark.parametrize("id", [0, 33])
def test_a_search_with_an_image_of_the_data_finds_it_first(port: int, explored: Explored, id: int) -> None:
    status, content, _ = ask(port, "/api/search", "POST", picture(explored, id))
    assert status == 200
    best, similarity = json.loads(content)[0]
    assert best == id and similarity == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(
    "path",
    ["/image/60", "/image/-1", "/thumb/99999999999", "/image/../../../etc/passwd", "/image/%2e%2e%2fetc%2fpasswd",
     "/thumb//etc/passwd", "/etc/passwd", "/api/neighbors/60", "/../pyproject.toml"],
)  # fmt: skip
def test_there_is_nothing_but_the_images(port: int, path: str) -> None:
    assert ask(port, path)[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "169.254.169.254", ""])
def test_other_hosts_names_are_refused(port: int, host: str) -> None:
    assert ask(port, "/api/summary", Host=host)[0] == 400


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"},
                {"Sec_Fetch_Site": "same-site"}, {"Origin": "http://127.0.0.1:1"}],
)  # fmt: skip
@pytest.mark.parametrize(("path", "method"), [("/api/summary", "GET"), ("/thumb/1", "GET"), ("/api/label", "POST")])
def test_requests_of_other_sites_are_refused(port: int, path: str, method: str, headers: dict[str, str]) -> None:
    body = json.dumps({"ids": [1], "label": "x"}).encode()
    assert ask(port, path, method, body, Content_Type="application/json", **headers)[0] == 403


def test_answers_cannot_be_framed_or_guessed_at(port: int) -> None:
    status, _, headers = ask(port, "/")
    assert status == 200
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{}", b"\xff", b'{"ids": [], "label": "x"}', b'{"ids": [60], "label": "x"}',
        b'{"ids": [-1], "label": "x"}', b'{"ids": [1], "label": "  "}', b'{"ids": "all", "label": "x"}',
        b'{"ids": [1], "label": "a\\u2028b"}', b'{"ids": [1e999], "label": "x"}', b'{"ids": [1], "label": "\\ud800"}',
    ],
)  # fmt: skip
def test_labels_that_mean_nothing_are_refused(port: int, explored: Explored, body: bytes) -> None:
    before = explored.labels_file.exists()
    assert ask(port, "/api/label", "POST", body, Content_Type="application/json")[0] == 400
    assert explored.labels_file.exists() == before


@pytest.mark.parametrize("body", [b"", b"no picture", b"GIF89a"])
def test_a_search_with_something_else_is_refused(port: int, body: bytes) -> None:
    assert ask(port, "/api/search", "POST", body)[0] == 400


def test_a_large_photo_is_found_by_itself(tmp_path: Path, runs: Path) -> None:
    """JPEGs that are decoded at a part of their size, among many that are nearly the same."""
    rng = np.random.default_rng(0)
    base = np.asarray(Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((1600, 1200)))
    for number in range(12):
        noisy = base.astype(int) + rng.normal(0, 6, base.shape) + number
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(tmp_path / f"{number:02d}.jpg")
    run = read_runs([str(runs / "csml")])[0].moved_to(str(tmp_path))
    burst = explore(replace(run, root=shutil.copytree(run.root, tmp_path / "run")))
    for id in (0, 5, 11):
        best, similarity = burst.search(Picture(tmp_path / f"{id:02d}.jpg"), 3)[0]
        assert best == id and similarity == pytest.approx(1, abs=1e-4)


def test_images_that_nobody_can_vote_on_are_not_predicted(explored: Explored) -> None:
    images = ArrayImages(np.zeros((30, 8, 8, 3), np.uint8), np.array([0] * 4 + [-1] * 26), ("a",), "few")
    features = torch.eye(30)
    features[:4, 0] = 1  # the labelled ones are near each other
    features[29] = 0  # cannot be read
    predicted, certainty = _predictions(explored.run, explored.opened, images, F.normalize(features, dim=1))
    assert predicted[:4].tolist() == [0] * 4
    assert predicted[29] == -1 and certainty[29] == -1


def test_a_link_from_another_page_may_lead_here_but_not_into_a_frame(port: int) -> None:
    assert ask(port, "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0] == 200
    assert ask(port, "/api/summary", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0] == 403


def test_a_map_is_made_once(runs: Path, explored: Explored) -> None:
    (file,) = (runs / "csml/explore").glob("map-*.npz")
    before = file.stat().st_mtime_ns
    again = explore(read_runs([str(runs / "csml")])[0])
    assert file.stat().st_mtime_ns == before
    assert np.array_equal(again.columns, explored.columns)


def test_a_classifier_s_own_predictions_are_shown(runs: Path) -> None:
    tuned = explore(read_runs([str(runs / "tuned")])[0])
    table = runs / "predictions.csv"
    assert csml("predict", str(runs / "tuned"), str(runs / "photos/train"), "--output", str(table)).returncode == 0
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [tuned.predicted_classes[int(label)] for label in tuned.columns[4]] == [row["label"] for row in rows]
    assert tuned.columns[5] == pytest.approx([float(row["entropy"]) for row in rows], abs=1e-3)


def test_the_page_opens_filters_and_finds_a_dropped_image(port: int, explored: Explored, tmp_path: Path) -> None:
    with browse(f"http://127.0.0.1:{port}/") as visit:
        page = visit.page
        assert page.get_attribute("#map", "data-points") == "60"
        page.select_option("#class", "2")
        assert page.get_attribute("#map", "data-points") == "12"
        page.check("#wrong")
        wrong = (explored.columns[2] == 2) & (explored.columns[4] != 2)
        assert page.get_attribute("#map", "data-points") == str(wrong.sum())
        page.click("#show-all")
        middle = round(float(np.median(explored.columns[5])), 2)
        page.fill("#entropy", str(middle))
        assert page.get_attribute("#map", "data-points") == str(int((explored.columns[5] >= middle).sum()))
        page.click("#show-all")
        nasty = [explored.images.name(id) for id in range(60)].index(f"arrow/{NASTY}")
        transfer = page.evaluate_handle(
            """bytes => {
                const transfer = new DataTransfer(), file = new File([new Uint8Array(bytes)], "dropped.png");
                transfer.items.add(file);
                return transfer;
            }""",
            list(picture(explored, nasty)),
        )
        page.dispatch_event("#drop", "drop", {"dataTransfer": transfer})
        page.wait_for_function(
            "document.querySelector('#neighbors .name').textContent.startsWith('Most like dropped.png')"
        )
        assert page.get_attribute("#neighbors button.thumb >> nth=0", "data-row") == str(nasty)
        assert NASTY in page.locator("#current .name").text_content()  # as text
        assert page.locator('img[src="x"]').count() == 0
        page.locator("#map").scroll_into_view_if_needed()
        page.mouse.move(*place_of(page, "map", 1, 4))
        page.wait_for_selector(f"#current[data-row]:not([data-row='{nasty}'])")
        assert visit.problems == []
        assert all(url.startswith((f"http://127.0.0.1:{port}/", "data:", "blob:")) for url in visit.requests)


def lasso_everything(page: Any, name: str) -> None:
    """With the mouse, around all that is shown, 12 images of class `name`."""
    box = page.locator("#map .nsewdrag").bounding_box()
    corners = [(0.01, 0.01), (0.99, 0.01), (0.99, 0.99), (0.01, 0.99), (0.01, 0.02)]
    spots = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners]
    page.mouse.move(*spots[0])
    page.mouse.down()
    for spot in spots[1:]:
        page.mouse.move(*spot, steps=5)
    page.mouse.up()
    page.wait_for_function(
        """name => { const chosen = [...document.querySelectorAll('#chosen img')];
            return chosen.length === 12 && chosen.every(image => image.alt.includes(`class ${name}`)); }""",
        arg=name,
    )


def test_lasso_label_fine_tune_predict(port: int, explored: Explored, runs: Path, tmp_path: Path) -> None:
    """The whole loop: two groups are labelled on the page, the rest is left to the commands."""
    explored.labels_file.unlink(missing_ok=True)
    with browse(f"http://127.0.0.1:{port}/") as visit:
        page = visit.page
        page.click("#mode-lasso")
        page.select_option("#class", "2")
        lasso_everything(page, "cross")
        for number, label in ((0, "pfeil"), (1, "mond")):
            page.select_option("#class", str(number))
            if number == 0:
                lasso_everything(page, "arrow")  # instead of the group before, not beside it
                with page.expect_download() as download:
                    page.click("#export")
                names = Path(download.value.path()).read_text().splitlines()
                assert len(names) == 12 and all(name.startswith("arrow/") for name in names)
            else:
                page.click("#select-shown")
            assert page.locator("#chosen img").count() == 12
            page.fill("#label", label)
            page.click("#give")
            page.wait_for_function(
                "n => document.getElementById('labelled').textContent === n", arg=str(12 * (number + 1))
            )
        assert visit.problems == []
    words = ["--preset", "demo", "--epochs", "1", "--batch_size", "8", "--monitor.tensorboard", "false"]
    labels = ["--data", str(runs / "photos"), "--labels", str(explored.labels_file)]
    done = csml("finetune", str(runs / "csml"), *labels, *words, "--out", str(tmp_path / "tuned"))
    assert done.returncode == 0, done.stderr
    done = csml("predict", str(tmp_path / "tuned"), str(runs / "photos/val"), "--output", str(tmp_path / "rest.csv"))
    assert done.returncode == 0, done.stderr
    with (tmp_path / "rest.csv").open(newline="") as file:
        assert {row["label"] for row in csv.DictReader(file)} <= {"pfeil", "mond"}


def test_fifty_thousand_points_are_held_and_zoomed(tmp_path: Path) -> None:
    count, rng = 50_000, np.random.default_rng(0)
    images = ArrayImages(np.zeros((count, 8, 8, 3), np.uint8), rng.integers(0, 10, count), tuple("abcdefghij"), "many")
    columns = np.stack([*rng.random((2, count)), images.labels, images.labels, images.labels, rng.random(count)])
    vectors = torch.from_numpy(rng.normal(size=(count, 4)))
    run = FinishedRun(tmp_path, "many", "pretrain", {"data": "many"}, [], {})
    fabric = fabric_for(images, 0, HardwareConfig(threads=1))
    opened = Opened(build_backbone("tiny").eval(), ImagesConfig(size=8), fabric, DataSplits(images, images, None))
    search = SearchIndex(F.normalize(vectors, dim=1).half())
    explored = Explored(
        run, opened, images, search, columns.astype(np.float32), images.classes, "", tmp_path / "labels.csv"
    )
    with serving(explored) as port, browse(f"http://127.0.0.1:{port}/") as visit:
        page = visit.page
        assert page.get_attribute("#map", "data-points") == str(count)
        box = page.locator("#map").bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        before = page.evaluate("document.getElementById('map')._fullLayout.xaxis.range.slice()")
        started = time.monotonic()
        page.mouse.wheel(0, -300)
        page.wait_for_function(
            "w => { const r = document.getElementById('map')._fullLayout.xaxis.range; return r[1] - r[0] < w; }",
            arg=before[1] - before[0],
        )
        assert time.monotonic() - started < 10  # software rendering on a busy machine; a GPU takes a frame
        assert visit.problems == []


def test_what_cannot_be_explored_is_one_line(tmp_path: Path, runs: Path) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    for words, problem in (
        ([str(tmp_path)], "is not a run directory"),
        ([str(runs)], "give one run"),
        ([str(runs / "csml"), "--port", str(taken.getsockname()[1])], "cannot be used"),
    ):
        done = csml("explore", *words)
        assert done.returncode == 2 and problem in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_a_picture_is_sent_whole_and_small(port: int, explored: Explored) -> None:
    whole = Image.open(io.BytesIO(ask(port, "/image/3")[1]))
    assert np.array_equal(np.asarray(whole), np.asarray(explored.images.read(3)))
    assert Image.open(io.BytesIO(ask(port, "/thumb/3")[1])).size == (96, 96)


def test_the_python_verb_returns_a_handle_that_serves_until_it_is_stopped(runs: Path) -> None:
    explorer = library.explore(runs / "csml", port=0, browser=False)
    port = int(explorer.address.rsplit(":", 1)[1])
    for _ in range(1000):
        with suppress(OSError):
            assert ask(port, "/")[0] == 200
            break
        time.sleep(0.01)
    assert explorer.labels.parent.is_dir() and explorer.address in repr(explorer)
    explorer.stop()
    with pytest.raises(OSError):
        ask(port, "/")
