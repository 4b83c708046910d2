"""Baselines in the table of a report, and the sentence about a run that is below one."""

import json
from pathlib import Path

import pytest

from csml.reporting.baselines import baseline_rows, shortfalls
from csml.reporting.runs import FinishedRun, read_runs


def judged(root: Path, accuracy: float, tested: int = 1000, **baselines: float) -> None:
    root.mkdir()
    (root / "config.yaml").write_text("framework: contrast\n")
    beside = {"accuracy": {name: {"20": share} for name, share in baselines.items()}}
    (root / "knn.json").write_text(json.dumps({"accuracy": {"20": accuracy}, "baselines": beside, "tested": tested}))


@pytest.fixture
def runs(tmp_path: Path) -> list[FinishedRun]:
    judged(tmp_path / "one", 0.4, chance=0.1, pixels=0.5, untrained=0.3)
    judged(tmp_path / "two", 0.8, chance=0.1, pixels=0.5, untrained=0.2, start=0.7)
    return read_runs([str(tmp_path / "one"), str(tmp_path / "two")])


def test_what_is_the_same_for_all_runs_stands_once(runs: list[FinishedRun]) -> None:
    found = [(row["name"], row["scores"]["20-NN"]) for row in baseline_rows(runs)]
    assert found == [
        ("largest class", pytest.approx(10)),
        ("raw pixels", pytest.approx(50)),
        ("untrained network (one)", pytest.approx(30)),
        ("untrained network (two)", pytest.approx(20)),
        ("starting weights", pytest.approx(70)),
    ]


def test_only_the_run_below_a_baseline_is_named(runs: list[FinishedRun]) -> None:
    (sentence,) = shortfalls(runs)
    assert sentence.startswith("one: 20-NN 40.0% is below raw pixels (50.0%): the run has learnt too little")


def test_a_difference_within_the_standard_error_is_not_named(tmp_path: Path) -> None:
    judged(tmp_path / "few", 0.808, tested=120, start=0.842)
    assert shortfalls(read_runs([str(tmp_path / "few")])) == []


def test_a_page_that_is_passed_on_names_no_folder_of_this_machine(tmp_path: Path) -> None:
    judged(tmp_path / "worse", 0.6, start=0.7)
    (sentence,) = shortfalls(read_runs([str(tmp_path / "worse")]))
    assert "use worse/start.safetensors" in sentence and str(tmp_path) not in sentence


def test_runs_without_baselines_have_none(tmp_path: Path) -> None:
    judged(tmp_path / "old", 0.4)
    old = read_runs([str(tmp_path / "old")])
    assert baseline_rows(old) == [] and shortfalls(old) == []
