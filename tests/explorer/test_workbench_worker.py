"""The process that fine-tunes for the page: how it ends is said, whatever happens in it."""

import errno
from pathlib import Path
from typing import Any

import pytest

from csml.errors import CsmlError
from csml.explorer import worker

ORDER = {"run": "runs/birds", "data": "photos", "labels": "labels.csv", "out": "tuned", "holdout": 0.0}


class Page:
    """What the page hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []

    def say(self, kind: str, **more: Any) -> None:
        self.heard.append((kind, more))

    def progress(self, what: str, done: int, total: int, note: str) -> None:
        pass


def answered(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> tuple[int, str, dict[str, Any]]:
    """Exit code, kind and content of the only answer if the work ends with an error, or well."""

    def work(order: dict[str, Any]) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(worker, "_work", work)
    page = Page()
    code = worker._answer(ORDER, page)  # type: ignore[arg-type]
    ((kind, more),) = page.heard
    return code, kind, more


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (CsmlError("labels: none of them is known"), "labels: none of them is known"),
        (OSError(errno.ENOSPC, "No space left on device", "tuned/a"), "tuned/a: the disk is full"),
        (MemoryError(), "there is not enough memory"),
    ],
)
def test_an_error_that_a_user_can_fix_is_one_line(error: Exception, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answered(monkeypatch, error) == (1, "error", {"text": line})


def test_any_other_error_leaves_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CSML_CACHE", str(tmp_path))
    code, kind, more = answered(monkeypatch, KeyError("stage5"))
    assert (code, kind) == (1, "error") and more["text"].startswith("internal error: KeyError: 'stage5'; please report")
    (report,) = (tmp_path / "crashes").iterdir()
    assert str(report) in more["text"]
    assert "runs/birds" in report.read_text() and "Traceback" in report.read_text()


def test_work_that_is_done_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answered(monkeypatch, None) == (0, "done", {})
