"""The server of the workbench: what it answers, what it refuses, and who may ask."""

import csv
import http.client
import io
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import csml as library
from conftest import csml
from csml.data.decode import Picture
from csml.errors import CsmlError
from csml.explorer.explore import Explorer
from csml.explorer.opening import open_workbench
from csml.explorer.training import Training
from csml.explorer.workbench import Workbench
from csml.reporting.runs import read_runs
from csml.runs.locks import only_writer, require_unused
from runs_to_show import NASTY, make_runs


@dataclass
class Server:
    """A page that is served, and its secret."""

    explorer: Explorer

    @property
    def bench(self) -> Workbench:
        return self.explorer._workbench

    @property
    def port(self) -> int:
        return int(self.explorer.address.split(":")[2].split("/")[0])

    @property
    def token(self) -> str:
        return self.explorer.address.split("token=")[1]

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> tuple[int, bytes, dict[str, str]]:
        """With the cookie, unless another one is given."""
        headers = {"Cookie": f"csml-{self.port}={self.token}"} | headers
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.putheader("Content-Length", str(len(body or b"")))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())

    def get(self, path: str) -> Any:
        status, content, _ = self.ask(path)
        assert status == 200, content
        return json.loads(content)

    def post(self, path: str, body: Any) -> tuple[int, bytes]:
        status, content, _ = self.ask(path, "POST", json.dumps(body).encode(), Content_Type="application/json")
        return status, content


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    return make_runs(tmp_path_factory.mktemp("explore"))


@pytest.fixture(scope="module")
def served(runs: Path) -> Iterator[Server]:
    explorer = library.explore(runs / "csml", port=0, browser=False)
    yield Server(explorer)
    explorer.stop()


def picture(server: Server, id: int) -> bytes:
    buffer = io.BytesIO()
    server.bench.images.read(id).save(buffer, "PNG")
    return buffer.getvalue()


def test_the_map_has_every_image_with_its_class_and_what_its_neighbours_say(served: Server) -> None:
    points = np.frombuffer(served.ask("/api/points")[1], np.float32).reshape(2, 60)
    assert points.min() >= 0 and points.max() <= 1
    summary = served.get("/api/summary")
    assert summary["count"] == 60
    assert [column["title"] for column in summary["columns"]] == ["class"]  # the tests have a folder of their own
    assert np.array_equal(np.frombuffer(served.ask("/api/column/0")[1], np.int32), served.bench.images.labels)
    assert served.bench.wait_for_suggestions() is not None
    assert np.frombuffer(served.ask("/api/column/suggested")[1], np.int32).min() >= 0
    assert np.frombuffer(served.ask("/api/column/entropy")[1], np.float32).min() >= 0


def test_images_are_found_by_examples_and_counter_examples(served: Server) -> None:
    features = served.bench.view.index.features.float()
    query = features[[7, 8]].mean(0) - 0.5 * features[30]
    similarity = features @ query / query.norm()
    similarity[[7, 8, 30]] = -2
    found = json.loads(served.post("/api/similar", {"positive": [7, 8], "negative": [30]})[1])
    assert found["ids"] == similarity.argsort(descending=True, stable=True)[:57].tolist()


@pytest.mark.parametrize("id", [0, 33])
def test_a_search_with_an_image_of_the_data_finds_it_first(served: Server, id: int) -> None:
    status, content, _ = served.ask("/api/search", "POST", picture(served, id))
    assert status == 200
    found = json.loads(content)
    assert found["ids"][0] == id and found["similarities"][0] == pytest.approx(1, abs=1e-3)


def test_images_are_found_by_name_and_described(served: Server) -> None:
    (id,) = served.get("/api/find?text=ONERROR")["ids"]
    (about,) = json.loads(served.post("/api/describe", {"ids": [id]})[1])
    assert about["name"] == f"arrow/{NASTY}"


def test_the_queue_asks_for_what_has_no_label(served: Server) -> None:
    first = served.get("/api/queue?n=5")
    assert len(set(first["ids"])) == 5 and len(first["notes"]) == 5
    served.post("/api/label", {"ids": first["ids"], "label": "x"})
    assert not set(served.get("/api/queue?n=55")["ids"]) & set(first["ids"])
    served.post("/api/undo", {})


@pytest.mark.parametrize(
    "path",
    ["/image/60", "/image/-1", "/thumb/99999999999", "/image/../../../etc/passwd", "/image/%2e%2e%2fetc%2fpasswd",
     "/thumb//etc/passwd", "/etc/passwd", "/api/column/9", "/../pyproject.toml", "/api/clean/x", "/page/main.js"],
)  # fmt: skip
def test_there_is_nothing_but_the_images(served: Server, path: str) -> None:
    assert served.ask(path)[0] == 404


def test_a_number_of_thousands_of_digits_is_refused(served: Server) -> None:
    assert served.ask("/image/" + "9" * 5000)[0] == 403


@pytest.mark.parametrize(
    "path", ["/", "/main.js", "/api/summary", "/api/state", "/thumb/1", "/image/1", "/?token=", "/?token=guess"]
)
@pytest.mark.parametrize("cookie", ["", "csml-1=x", "csml-{port}=guess", "csml-{port}=é"])
def test_nobody_gets_anything_without_the_token(served: Server, path: str, cookie: str) -> None:
    status, content, headers = served.ask(path, Cookie=cookie.format(port=served.port))
    assert status == 403 and b"token" in content and "set-cookie" not in headers


def test_the_token_in_the_address_leaves_a_cookie_that_scripts_cannot_read(served: Server) -> None:
    status, _, headers = served.ask(f"/?token={served.token}", Cookie="")
    assert status == 200
    assert (
        served.token in headers["set-cookie"]
        and "HttpOnly" in headers["set-cookie"]
        and "SameSite=Strict" in headers["set-cookie"]
    )
    assert served.ask(f"/api/state?token={served.token}", Cookie="")[0] == 403  # only the page itself


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "169.254.169.254", ""])
def test_other_hosts_names_are_refused(served: Server, host: str) -> None:
    assert served.ask("/api/summary", Host=host)[0] == 400


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"},
                {"Sec_Fetch_Site": "same-site"}, {"Origin": "http://127.0.0.1:1"}],
)  # fmt: skip
@pytest.mark.parametrize(("path", "method"), [("/api/summary", "GET"), ("/thumb/1", "GET"), ("/api/label", "POST")])
def test_requests_of_other_sites_are_refused(served: Server, path: str, method: str, headers: dict[str, str]) -> None:
    body = json.dumps({"ids": [1], "label": "x"}).encode()
    assert served.ask(path, method, body, Content_Type="application/json", **headers)[0] == 403


def test_a_link_from_another_page_may_lead_here_but_not_into_a_frame(served: Server) -> None:
    assert served.ask("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0] == 200
    assert served.ask("/api/summary", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0] == 403


def test_answers_cannot_be_framed_or_guessed_at_and_no_script_comes_from_elsewhere(served: Server) -> None:
    status, content, headers = served.ask("/")
    assert status == 200
    policy = headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy and "script-src 'self';" in policy and "unsafe-eval" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert b"plotly" not in content and b"https://" not in content


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{}", b"\xff", b'{"ids": [], "label": "x"}', b'{"ids": [60], "label": "x"}',
        b'{"ids": [-1], "label": "x"}', b'{"ids": [1], "label": "  "}', b'{"ids": "all", "label": "x"}',
        b'{"ids": [1], "label": "a\\u2028b"}', b'{"ids": [1e999], "label": "x"}', b'{"ids": [1], "label": "\\ud800"}',
        b'{"ids": [true], "label": "x"}', b'{"ids": [1], "label": 3}', b'{"labels": {"60": "x"}}',
        b'{"labels": {"x": "x"}}', b'{"labels": {}}', b'{"ids": [1], "label": "x", "existing": "all"}',
        b'{"ids": [1], "label": "' + b"x" * 201 + b'"}', b"[" * 200_000,
    ],
)  # fmt: skip
def test_labels_that_mean_nothing_are_refused(served: Server, body: bytes) -> None:
    before = served.bench.store.version
    assert served.ask("/api/label", "POST", body, Content_Type="application/json")[0] == 400
    assert served.bench.store.version == before


@pytest.mark.parametrize(
    "path", ["/api/queue?n=0", "/api/queue?n=99999999", "/api/queue?n=x", "/api/queue?by=magic", "/api/find?text=",
             f"/api/find?text={'x' * 501}", "/api/clean/duplicates?similarity=2", "/api/clean/outliers?similarity=nan"],
)  # fmt: skip
def test_every_field_has_limits(served: Server, path: str) -> None:
    assert served.ask(path)[0] == 400


@pytest.mark.parametrize("body", [b"", b"no picture", b"GIF89a"])
def test_a_search_with_something_else_is_refused(served: Server, body: bytes) -> None:
    assert served.ask("/api/search", "POST", body)[0] == 400


def test_another_label_is_not_replaced_unless_that_is_said(served: Server) -> None:
    assert served.post("/api/label", {"ids": [1, 2], "label": "ring"})[0] == 200
    status, content = served.post("/api/label", {"ids": [1, 2, 3], "label": "donut"})
    assert status == 409 and json.loads(content) == {"changed": 0, "others": {"ring": 2}}
    assert set(served.explorer.labels.values()) == {"ring"}
    served.post("/api/label", {"ids": [1, 2, 3], "label": "donut", "existing": "keep"})
    assert sorted(served.explorer.labels.values()) == ["donut", "ring", "ring"]
    served.post("/api/label", {"labels": {"1": "donut", "2": None}, "existing": "replace"})
    assert sorted(served.explorer.labels.values()) == ["donut", "donut"]
    for _ in range(3):
        served.post("/api/undo", {})
    assert served.explorer.labels == {} and not served.explorer.labels_file.exists()


def test_what_is_known_is_exported_in_every_format(served: Server, tmp_path: Path) -> None:
    served.post("/api/label", {"labels": {"13": "moon", "0": "pfeil"}})
    served.post("/api/tag", {"ids": [13, 20], "tag": "dark"})
    names = served.bench.names
    text = {
        name: served.post("/api/export", {"format": name})[1].decode()
        for name in ("csv", "list", "jsonl", "coco", "fiftyone")
    }
    rows = list(csv.DictReader(io.StringIO(text["csv"])))
    assert [row["path"] for row in rows] == text["list"].splitlines() == [names[id] for id in (0, 13, 20)]
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
    assert served.post("/api/export", {"format": "list", "ids": [5]})[1].decode().split() == [names[5]]
    served.post("/api/undo", {})
    served.post("/api/undo", {})


def test_lists_of_what_may_not_belong(served: Server) -> None:
    def ready(kind: str) -> dict[str, Any]:
        for _ in range(600):
            answer = served.get(f"/api/clean/{kind}?similarity=0.5")
            assert answer["problem"] is None
            if answer["found"] is not None:
                return dict(answer["found"])
            time.sleep(0.05)
        raise AssertionError(kind)

    groups = ready("duplicates")
    assert len(groups["ids"]) == len(set(groups["ids"])) == len(groups["notes"]) and set(groups["extra"]) < set(
        groups["ids"]
    )
    served.post("/api/label", {"labels": {str(id): served.bench.images.classes[id // 12] for id in range(60)}})
    served.post("/api/label", {"labels": {"3": "flower"}, "existing": "replace"})
    assert all(id < 60 for id in ready("wrong")["ids"])
    assert ready("unreadable")["ids"] == [] and ready("tiny")["ids"] == []
    for _ in range(600):
        if served.ask("/api/column/density")[0] == 200:
            break
        time.sleep(0.05)
    density = np.frombuffer(served.ask("/api/column/density")[1], np.float32)
    features = served.bench.view.index.features.float()
    nearest = (features @ features.T).fill_diagonal_(-1).topk(5).values.mean(1)
    assert torch.from_numpy(density.copy()) == pytest.approx(nearest, abs=1e-3)
    for _ in range(2):
        served.post("/api/undo", {})


def test_two_pages_of_a_run_never_tune_in_the_same_folder(served: Server) -> None:
    """Each once deleted what the other was making; what a dead worker left is deleted when it is old."""
    first, second = (Training(served.bench, served.bench.view.opened, 0)._next_tuned() for _ in range(2))
    assert first.root != second.root and first.root.exists() and second.root.exists()
    for run in (first, second):
        os.utime(run.root, (0, 0))
    with ThreadPoolExecutor() as pool, only_writer(first.root):  # a worker that lives; another thread asks
        os.utime(first.root, (0, 0))
        third = pool.submit(Training(served.bench, served.bench.view.opened, 0)._next_tuned).result()
        assert first.root.exists() and not second.root.exists() and third.root != first.root
    for run in (first, third):
        shutil.rmtree(run.root)


def test_a_run_on_a_page_is_not_overwritten(served: Server) -> None:
    with pytest.raises(CsmlError, match="is being used by another csml"):
        require_unused(served.bench.run.root)


def test_training_needs_two_classes(served: Server) -> None:
    status, content = served.post("/api/train", {})
    assert status == 409 and b"two classes" in content


def test_a_large_photo_is_found_by_itself(tmp_path: Path, runs: Path) -> None:
    """JPEGs that are decoded at a part of their size, among many that are nearly the same."""
    rng = np.random.default_rng(0)
    base = np.asarray(Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((1600, 1200)))
    for number in range(12):
        noisy = base.astype(int) + rng.normal(0, 6, base.shape) + number
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(tmp_path / f"{number:02d}.jpg")
    shutil.copytree(runs / "csml", tmp_path / "run")
    burst, _ = open_workbench(read_runs([str(tmp_path / "run")])[0].moved_to(str(tmp_path)))
    for id in (0, 5, 11):
        number = burst.upload(Picture(tmp_path / f"{id:02d}.jpg"))
        best, similarity = burst.similar([], [], [number], 3)[0]
        assert best == id and similarity == pytest.approx(1, abs=1e-3)


def test_a_map_is_made_once_and_has_its_file(runs: Path, served: Server) -> None:
    served.bench.view.drawing.finish()
    (file,) = (runs / "csml/explore").glob("map-*.npz")
    again, _ = open_workbench(read_runs([str(runs / "csml")])[0])
    assert again.view.drawing.finished and np.array_equal(again.view.drawing.points, served.bench.view.drawing.points)
    file.write_bytes(b"damaged")
    fresh, _ = open_workbench(read_runs([str(runs / "csml")])[0])
    fresh.view.drawing.finish()
    assert np.array_equal(fresh.view.drawing.points, served.bench.view.drawing.points)


def test_a_classifier_s_own_predictions_are_suggested(runs: Path) -> None:
    tuned, _ = open_workbench(read_runs([str(runs / "tuned")])[0])
    table = runs / "predictions.csv"
    assert csml("predict", str(runs / "tuned"), str(runs / "photos/train"), "--output", str(table)).returncode == 0
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    suggested = tuned.suggestions()
    assert suggested is not None
    assert [suggested.classes[label] for label in suggested.labels] == [row["label"] for row in rows]
    assert suggested.entropies == pytest.approx([float(row["entropy"]) for row in rows], abs=1e-2)


def test_what_cannot_be_explored_is_one_line(tmp_path: Path, runs: Path) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    (tmp_path / "columns.csv").write_text("a,b\n1,2\n")
    for words, problem in (
        ([str(tmp_path)], "is not a run directory"),
        ([str(runs)], "give one run"),
        ([str(runs / "csml"), "--port", str(taken.getsockname()[1])], "cannot be used"),
        ([str(runs / "csml"), "--port", "0", "--columns", str(tmp_path / "columns.csv")], "needs a header"),
    ):
        done = csml("explore", *words)
        assert done.returncode == 2 and problem in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_a_picture_is_sent_whole_and_small(served: Server) -> None:
    whole = Image.open(io.BytesIO(served.ask("/image/3")[1]))
    assert np.array_equal(np.asarray(whole), np.asarray(served.bench.images.read(3)))
    assert Image.open(io.BytesIO(served.ask("/thumb/3")[1])).size == (128, 128)


def test_a_request_that_fails_is_answered_in_one_line(
    served: Server, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], cache: Path
) -> None:
    served.bench.store.save()
    wal = served.bench.store.file.with_name(f"{served.bench.store.file.name}-wal")
    wal.unlink(missing_ok=True)
    wal.mkdir()  # a full disk in effect
    status, content = served.post("/api/label", {"ids": [1], "label": "late"})
    wal.rmdir()
    assert (status, content.count(b"\n")) == (507, 0) and b"is the disk full" in content
    assert served.post("/api/label", {"ids": [1], "label": "late"})[0] == 200
    served.post("/api/undo", {})

    def wrong(*_: object) -> None:
        raise ZeroDivisionError("nobody foresaw this")

    monkeypatch.setattr(served.bench, "label", wrong)
    status, content = served.post("/api/label", {"ids": [1], "label": "late"})
    assert status == 500 and content.startswith(b"csml made a mistake: ZeroDivisionError: nobody foresaw this")
    assert Path(content.decode().rpartition(" ")[2]).is_relative_to(cache)
    assert "Traceback" not in capfd.readouterr().err


def test_the_page_stops_although_an_upload_never_ends(runs: Path) -> None:
    explorer = library.explore(runs / "csml", port=0, browser=False)
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
