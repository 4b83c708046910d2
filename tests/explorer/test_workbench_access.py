"""Who may ask the server of the workbench, and what it refuses."""

import json
import socket
from pathlib import Path

import pytest

import csml as library
from conftest import csml
from csml.errors import CsmlError
from csml.runs.locks import require_unused
from workbench_server import Server

pytest_plugins = "workbench_fixtures"


@pytest.mark.parametrize(
    "path",
    ["/image/60", "/image/-1", "/thumb/99999999999", "/image/../../../etc/passwd", "/image/%2e%2e%2fetc%2fpasswd",
     "/thumb//etc/passwd", "/etc/passwd", "/api/column/9", "/../pyproject.toml", "/api/clean/x", "/page/main.js"],
)  # fmt: skip
def test_there_is_nothing_but_the_images(server: Server, path: str) -> None:
    assert server.ask(path)[0] == 404


def test_a_number_of_thousands_of_digits_is_refused(server: Server) -> None:
    assert server.ask("/image/" + "9" * 5000)[0] == 403


@pytest.mark.parametrize(
    "path", ["/", "/main.js", "/api/summary", "/api/state", "/thumb/1", "/image/1", "/?token=", "/?token=guess"]
)
@pytest.mark.parametrize("cookie", ["", "csml-1=x", "csml-{port}=guess", "csml-{port}=é"])
def test_nobody_gets_anything_without_the_token(server: Server, path: str, cookie: str) -> None:
    status, content, headers = server.ask(path, Cookie=cookie.format(port=server.port))
    assert status == 403 and b"token" in content and "set-cookie" not in headers


def test_the_token_in_the_address_leaves_a_cookie_that_scripts_cannot_read(server: Server) -> None:
    status, _, headers = server.ask(f"/?token={server.token}", Cookie="")
    assert status == 200
    assert (
        server.token in headers["set-cookie"]
        and "HttpOnly" in headers["set-cookie"]
        and "SameSite=Strict" in headers["set-cookie"]
    )
    assert server.ask(f"/api/state?token={server.token}", Cookie="")[0] == 403  # only the page itself


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "169.254.169.254", ""])
def test_other_hosts_names_are_refused(server: Server, host: str) -> None:
    assert server.ask("/api/summary", Host=host)[0] == 400


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"},
                {"Sec_Fetch_Site": "same-site"}, {"Origin": "http://127.0.0.1:1"}],
)  # fmt: skip
@pytest.mark.parametrize(("path", "method"), [("/api/summary", "GET"), ("/thumb/1", "GET"), ("/api/label", "POST")])
def test_requests_of_other_sites_are_refused(server: Server, path: str, method: str, headers: dict[str, str]) -> None:
    body = json.dumps({"ids": [1], "label": "x"}).encode()
    assert server.ask(path, method, body, Content_Type="application/json", **headers)[0] == 403


def test_a_link_from_another_page_may_lead_here_but_not_into_a_frame(server: Server) -> None:
    assert server.ask("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0] == 200
    assert server.ask("/api/summary", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0] == 403


def test_answers_cannot_be_framed_or_guessed_at_and_no_script_comes_from_elsewhere(server: Server) -> None:
    status, content, headers = server.ask("/")
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
def test_labels_that_mean_nothing_are_refused(server: Server, body: bytes) -> None:
    before = server.bench.store.version
    assert server.ask("/api/label", "POST", body, Content_Type="application/json")[0] == 400
    assert server.bench.store.version == before


@pytest.mark.parametrize(
    "path", ["/api/queue?n=0", "/api/queue?n=99999999", "/api/queue?n=x", "/api/queue?by=magic", "/api/find?text=",
             f"/api/find?text={'x' * 501}", "/api/clean/duplicates?similarity=2", "/api/clean/outliers?similarity=nan"],
)  # fmt: skip
def test_every_field_has_limits(server: Server, path: str) -> None:
    assert server.ask(path)[0] == 400


@pytest.mark.parametrize("body", [b"", b"no picture", b"GIF89a"])
def test_a_search_with_something_else_is_refused(server: Server, body: bytes) -> None:
    assert server.ask("/api/search", "POST", body)[0] == 400


def test_a_run_on_a_page_is_not_overwritten(server: Server) -> None:
    with pytest.raises(CsmlError, match="is being used by another csml"):
        require_unused(server.bench.run.root)


def test_what_cannot_be_explored_is_one_line(tmp_path: Path, explored: Path) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    (tmp_path / "columns.csv").write_text("a,b\n1,2\n")
    for words, problem in (
        ([str(tmp_path)], "is not a run directory"),
        ([str(explored)], "give one run"),
        ([str(explored / "csml"), "--port", str(taken.getsockname()[1])], "cannot be used"),
        ([str(explored / "csml"), "--port", "0", "--columns", str(tmp_path / "columns.csv")], "needs a header"),
    ):
        done = csml("explore", *words)
        assert done.returncode == 2 and problem in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_a_page_that_cannot_be_opened_gives_its_port_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.yaml").write_text("data: synthetic\nimages: {size: 32}\n")
    (tmp_path / "run/backbone.safetensors").touch()

    def refuse(*arguments: object) -> None:
        raise CsmlError("columns: no header")

    monkeypatch.setattr("csml.explorer.opening.open_workbench", refuse)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(CsmlError, match="no header") as caught:  # which keeps the variables of `explore` alive
        library.explore(tmp_path / "run", port=port, browser=False)
    with socket.create_server(("127.0.0.1", port)):
        assert caught.tb is not None
