"""Labels and tags in SQLite: transactions, undo, several writers, and the CSV beside them."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from csml.data.folder_index import index_folder
from csml.data.images import FolderImages
from csml.data.tables import read_table
from csml.errors import CsmlError
from csml.explorer.labels_in_files import names_in
from csml.explorer.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "workbench.sqlite", tmp_path / "labels.csv")


def in_csv(store: Store) -> dict[str, str]:
    store.write_labels()
    return {name: label for _, name, label in read_table(store.csv_file)} if store.csv_file.exists() else {}


def test_every_change_can_be_undone_and_done_again_in_order(store: Store) -> None:
    states = [{}]
    for labels in ({"a": "ring", "b": "ring"}, {"b": "donut"}, {"a": None, "c": "star"}):
        store.set_labels(labels, "change")
        states.append(store.labels())
    assert states[-1] == {"b": "donut", "c": "star"} == in_csv(store)
    for state in reversed(states[:-1]):
        assert store.undo() is not None
        assert store.labels() == state == in_csv(store)
    assert store.undo() is None
    for state in states[1:]:
        assert store.redo() is not None
        assert store.labels() == state == in_csv(store)
    assert store.redo() is None


def test_what_was_undone_cannot_be_done_again_after_something_else(store: Store) -> None:
    store.set_labels({"a": "one"}, "first")
    store.undo()
    store.set_labels({"a": "two"}, "second")
    assert store.redo() is None and store.labels() == {"a": "two"}
    assert [(one.about, one.undone) for one in store.history()] == [("second", False), ("first", True)]
    assert all(one.who and one.at for one in store.history())


def test_what_was_undone_for_good_does_not_come_back_with_a_later_redo(store: Store) -> None:
    store.set_labels({"a": "old"}, "old")
    store.undo()
    store.set_labels({"a": "new"}, "new")
    store.undo()
    done = store.redo()
    assert done is not None and done.about == "new" and store.labels() == {"a": "new"}
    assert store.redo() is None
    assert [(one.about, one.undone, one.for_good) for one in store.history()] == [
        ("new", False, False),
        ("old", True, True),
    ]


def test_an_image_has_one_label_and_many_tags(store: Store) -> None:
    store.set_tag(["a", "b"], "dark", True, "tagged")
    store.set_tag(["a"], "blurred", True, "tagged")
    store.set_tag(["b"], "dark", False, "untagged")
    assert store.tags() == {"a": ["blurred", "dark"]}
    store.undo()
    assert store.tags() == {"a": ["blurred", "dark"], "b": ["dark"]}
    assert store.set_tag(["a"], "dark", True, "again") is None  # nothing changes, so there is nothing to undo


def test_words_keep_the_order_of_their_first_use(store: Store) -> None:
    for word in ("zebra", "ant", "zebra", "bee"):
        store.set_labels({"a": word}, word)
    assert store.words("label") == ["zebra", "ant", "bee"]


def test_everything_is_there_after_a_restart_and_strange_names_survive(store: Store) -> None:
    labels = {"sub/a,b.png": 'x "y"', "new\nline.png": "two", "\udcff.png": "bytes", "<b>.png": "<script>"}
    store.set_labels(dict(labels), "strange")
    again = Store(store.file, store.csv_file)
    assert again.labels() == labels and again.version == store.version
    assert in_csv(store) == labels


def test_labels_of_an_older_csml_and_edits_by_hand_are_taken_over(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("path,label\na,ring\nb,star\n")
    store = Store(tmp_path / "workbench.sqlite", tmp_path / "labels.csv")
    assert store.labels() == {"a": "ring", "b": "star"}
    store.set_labels({"c": "star"}, "page")
    store.write_labels()
    (tmp_path / "labels.csv").write_text("path,label\na,ring\nc,moon\n")
    again = Store(tmp_path / "workbench.sqlite", tmp_path / "labels.csv")
    assert again.labels() == {"a": "ring", "c": "moon"}
    again.undo()
    assert again.labels() == {"a": "ring", "b": "star", "c": "star"} == in_csv(again)


def test_rows_of_the_csv_may_have_every_form_that_finetune_accepts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "photos").mkdir()
    for name in "abc":
        Image.new("RGB", (8, 8)).save(tmp_path / "photos" / f"{name}.png")
    monkeypatch.chdir(tmp_path)
    name_of = names_in(FolderImages(index_folder(Path("photos"))))
    rows = ["photos/a.png,ring", "b.png,star", f"{tmp_path}/photos/c.png,moon", "gone/x.png,ring", "gone/y.png,ring"]
    Path("labels.csv").write_text("\n".join(["path,label", *rows]))
    store = Store(tmp_path / "workbench.sqlite", tmp_path / "labels.csv", name_of=name_of)
    there = {"a.png": "ring", "b.png": "star", "c.png": "moon"}
    assert store.labels() == there | {"gone/x.png": "ring", "gone/y.png": "ring"} == in_csv(store)
    assert f"{store.csv_file}: 2 rows name no image of the data, such as gone/x.png" in caplog.messages
    store.undo()
    assert store.labels() == {}


def test_writers_at_the_same_time_lose_nothing(store: Store) -> None:
    def write(writer: int) -> None:
        own = Store(store.file, store.csv_file)
        for number in range(10):
            own.set_labels({f"{writer}-{number}": str(writer)}, "")

    writers = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(store.labels()) == 40 and in_csv(store) == store.labels() and store.version == 40


def test_a_change_that_fails_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.set_labels({"a": "ring"}, "")
    monkeypatch.setattr("csml.explorer.store._user", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        store.set_labels({"a": "donut"}, "")
    assert store.labels() == {"a": "ring"} and len(store.history()) == 1


def test_a_csv_that_cannot_be_written_costs_no_label(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store.set_labels({"a": "ring"}, "")
    with monkeypatch.context() as full:

        def no_room(path: Path) -> None:
            raise OSError("disk full")

        full.setattr("csml.data.tables.atomic_write", no_room)
        with pytest.raises(CsmlError, match="no label is lost"):
            store.write_labels()
        store.save()
        assert "disk full" in caplog.text
    assert store.labels() == {"a": "ring"} == in_csv(store)


def test_the_csv_follows_by_itself(tmp_path: Path) -> None:
    store = Store(tmp_path / "workbench.sqlite", tmp_path / "labels.csv", csv_seconds=0.05)
    for name in "ab":
        store.set_labels({name: "ring"}, "")
    wait_for(lambda: store.csv_file.exists() and len(read_table(store.csv_file)) == 2)


def wait_for(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_labels_that_a_crash_kept_from_the_csv_survive_edits_by_hand(store: Store) -> None:
    store.set_labels({"a": "ring", "b": "ring"}, "")
    store.write_labels()
    store.set_labels({"b": "star", "c": "star"}, "")  # and the server dies
    store.csv_file.write_text("path,label\na,moon\nb,ring\n")
    again = Store(store.file, store.csv_file)
    assert again.labels() == {"a": "moon", "b": "star", "c": "star"} == in_csv(again)
    store.set_labels({"d": "star"}, "")  # and the server dies again
    assert {name for _, name, _ in read_table(Store(store.file, store.csv_file).csv_file)} == {"a", "b", "c", "d"}


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "workbench.sqlite").write_bytes(b"no database" * 500)
    with pytest.raises(CsmlError, match="cannot be used"):
        Store(tmp_path / "workbench.sqlite", tmp_path / "labels.csv")


def test_a_file_that_cannot_be_read_for_a_while_is_one_line(store: Store) -> None:
    """As on a full disk, where SQLite finds no room for its files beside it; once this was a traceback."""
    store.set_labels({"a": "ring"}, "label")
    store.write_labels()
    wal = store.file.with_name(f"{store.file.name}-wal")
    wal.unlink(missing_ok=True)
    wal.mkdir()
    for use in (lambda: store.version, store.labels, store.undo, lambda: store.set_labels({"b": "star"}, "label")):
        with pytest.raises(CsmlError, match=r"cannot be read or written .*is the disk full"):
            use()
    wal.rmdir()
    assert store.labels() == {"a": "ring"}
