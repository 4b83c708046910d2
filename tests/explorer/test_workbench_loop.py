"""The whole loop on an unlabelled folder: labels from the queue, fine-tuning, better suggestions, undo, export."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from conftest import assert_same, csml
from runs_to_show import make_flat_run
from workbench_page import focused, opened, type_label, unexpected, until, wait_for_labels


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    return make_flat_run(tmp_path_factory.mktemp("flat"))


def test_from_unlabelled_photos_to_a_classifier(flat: Path, tmp_path: Path) -> None:
    names = sorted(path.name for path in (flat / "photos").iterdir())
    with opened(flat / "run") as (explorer, visit):
        page = visit.page
        given: list[str] = []
        chosen: list[int] = []
        while len(chosen) < 20:
            id = focused(page)
            assert id not in chosen  # the queue never asks twice
            word = names[id].removesuffix(".png").split("-")[1]
            suggestion = page.evaluate(
                "id => document.querySelector(`.tile[data-id='${id}'] .guess`)?.textContent ?? ''", id
            )
            if word in suggestion:
                page.keyboard.press("Enter")
            elif word in given:
                page.keyboard.press(str(given.index(word) + 1))
            else:
                given.append(word)
                type_label(page, word)
            chosen.append(id)
            wait_for_labels(page, len(chosen))
            until(page, "old => csmlPage.model.focus !== old", id)
        assert explorer.labels == {names[id]: names[id].removesuffix(".png").split("-")[1] for id in chosen}
        before = page.evaluate("[[...csmlPage.model.suggested], [...csmlPage.model.probability]]")
        page.click("#train")
        page.wait_for_selector("#job[data-state=done]")
        told = page.text_content("#job-text")
        assert "Learnt from 20 labels (" in told and f"The classifier is in {flat}/run/explore/tuned-001." in told
        until(page, "() => csmlPage.model.state.suggestions.source.startsWith('the classifier of 20 labels')")
        after = page.evaluate("[[...csmlPage.model.suggested], [...csmlPage.model.probability]]")
        assert after != before
        page.keyboard.press("Escape")
        page.keyboard.press("Control+z")
        wait_for_labels(page, 19)
        page.keyboard.press("Control+Shift+z")
        wait_for_labels(page, 20)
        saved = download(page, "csv", tmp_path / "export.csv")
        with saved.open(newline="") as file:
            rows = list(csv.DictReader(file))
        photos = flat / "photos"
        assert {row["path"]: row["label"] for row in rows} == {
            str(photos / name): label for name, label in explorer.labels.items()
        }
        command = page.evaluate("csmlPage.model.info.command")
        assert unexpected(visit) == []
    assert f"--labels {flat}/run/explore/labels.csv" in command
    words = ["--data", str(flat / "photos"), "--labels", str(saved), "--holdout", "0"]
    done = csml("finetune", str(flat / "run"), *words, "--out", str(tmp_path / "tuned"))
    assert done.returncode == 0, done.stderr
    ours, theirs = (
        load_file(run / "classifier.safetensors") for run in (flat / "run/explore/tuned-001", tmp_path / "tuned")
    )
    assert_same(ours, theirs)


def download(page: Any, format: str, to: Path) -> Path:
    page.click("#export-menu summary")
    page.select_option("#export-format", format)
    with page.expect_download() as started:
        page.click("#export button")
    started.value.save_as(to)
    return to


def test_training_can_be_cancelled_and_leaves_nothing(flat: Path) -> None:
    with opened(flat / "run") as (_, visit):
        page = visit.page
        page.click("#train")
        page.wait_for_selector("#job[data-state=running]")
        page.click("#cancel")
        page.wait_for_selector("#job[data-state=cancelled]")
        assert not (flat / "run/explore/tuned-002").exists()
        assert unexpected(visit) == []


def test_the_next_start_goes_on_with_the_last_classifier(flat: Path) -> None:
    with opened(flat / "run") as (_, visit):
        state = json.loads(visit.page.evaluate("JSON.stringify(csmlPage.model.state)"))
        assert state["suggestions"]["source"].startswith("the classifier of 20 labels")
        assert sum(state["counts"].values()) == 20
