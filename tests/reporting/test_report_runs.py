"""What the report reads from runs: which belong together, whose scores they are, and what is missing."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from browser import browse
from conftest import csml
from csml.data.open import open_data
from csml.errors import CsmlError
from csml.reporting.baselines import baseline_rows
from csml.reporting.charts import Chart, Series
from csml.reporting.content import Content, config_of
from csml.reporting.glossary import TERMS, meaning_of, occurs
from csml.reporting.headline import headline
from csml.reporting.html import asset, render
from csml.reporting.runs import FinishedRun, read_runs
from csml.reporting.scores import summary
from csml.reporting.seed_groups import group_by_seed, group_name, mean_rows, overview
from csml.reporting.svg import as_svg
from csml.reporting.views_sheet import draw_views


def test_runs_that_differ_in_their_seed_are_told_as_one(runs: Path) -> None:
    one, *_ = read_runs([str(runs / "csml")])
    seeds = [
        replace(
            one,
            root=Path("csml") / f"seed-{seed}",
            name=f"csml/seed-{seed}",
            settings={**one.settings, "seed": seed},
            results={"knn": {"accuracy": {"20": share}}},
        )
        for seed, share in ((0, 0.6), (1, 0.64))
    ]
    assert [len(kind) for kind in group_by_seed(seeds)] == [2]
    assert headline(seeds).startswith("csml recognises 62 ± 3 of 100 test pictures by their neighbours")
    (row,) = mean_rows(seeds, ["20-NN"])
    assert row["scores"] == {"20-NN": "62.0 ± 2.8"}


def test_a_backbone_s_row_has_the_scores_of_what_started_from_it(runs: Path) -> None:
    found = read_runs([str(runs / name) for name in ("moco-v2", "csml", "tuned")])
    tasks, rows = summary(found)
    assert [row["name"] for row in rows] == ["moco-v2", "csml"]
    tuned = json.loads((runs / "tuned/finetune.json").read_text())
    assert rows[1]["scores"]["few labels (30)"] == pytest.approx(100 * tuned["top1"])
    assert {"5-NN", "linear, stage 3", "linear, stage 4", "few labels (30)"} == set(tasks)
    chart = overview(found)
    assert chart is not None and [series.name for series in chart.series] == ["moco-v2", "csml"]


def test_a_folder_of_runs_stands_for_all_of_them(runs: Path) -> None:
    assert {run.name for run in read_runs([str(runs)])} == {"csml", "moco-v2", "tuned"}
    with pytest.raises(CsmlError, match="is not a run directory"):
        read_runs([str(runs / "photos")])


def test_scores_of_a_run_s_own_network_stay_with_it_and_none_is_lost(runs: Path, tmp_path: Path) -> None:
    """A second fine-tuning from a link to the backbone; kNN of a fine-tuned network."""
    (tmp_path / "link").symlink_to(runs / "csml")
    again = tmp_path / "again"
    again.mkdir()
    settings = yaml.safe_load((runs / "tuned/config.yaml").read_text())
    (again / "config.yaml").write_text(yaml.safe_dump({**settings, "weights": str(tmp_path / "link")}))
    (again / "finetune.json").write_text(json.dumps({"top1": 0.9, "labels": 30}))
    (again / "knn.json").write_text(json.dumps({"accuracy": {"5": 0.25}}))
    _, rows = summary(read_runs([str(runs / "csml"), str(runs / "tuned"), str(again)]))
    by_name = {row["name"]: row["scores"] for row in rows}
    assert by_name["csml"]["few labels (30), again"] == pytest.approx(90)
    assert by_name["again"] == {"5-NN": 25}
    assert by_name["csml"]["5-NN"] != 25


def test_the_rounds_of_mining_are_not_runs_of_their_own(runs: Path, tmp_path: Path) -> None:
    mined = tmp_path / "mined"
    (mined / "round-1").mkdir(parents=True)
    for folder in (mined, mined / "round-1"):
        (folder / "config.yaml").write_text("max_entropy: 1\n")
    (mined / "round-1/metrics.jsonl").write_text('{"epoch": 1, "loss": 2.0}\n')
    (run,) = read_runs([str(tmp_path)])
    assert run.command == "mine" and run.metrics == [{"epoch": 1, "loss": 2.0}]


def test_what_is_gone_or_changed_is_told_and_the_rest_is_shown(runs: Path, tmp_path: Path) -> None:
    """Data that moved away, and data that is not what the run learnt from; then --data."""
    moved = tmp_path / "moved"
    shutil.copytree(runs / "csml", moved)
    settings = yaml.safe_load((moved / "config.yaml").read_text())
    (moved / "config.yaml").write_text(yaml.safe_dump({**settings, "data": str(tmp_path / "gone")}))
    done = csml("report", str(moved))
    assert done.returncode == 0, done.stderr
    page = (moved / "report.html").read_text()
    assert str(tmp_path) not in page[: page.index('id="settings"')]
    assert "moved is shown without images: data: there is no folder" in page and "Loss of moved" in page
    fewer = tmp_path / "fewer"
    shutil.copytree(runs / "photos", fewer)
    (fewer / "train" / "arrow" / "01.png").write_bytes(b"no picture")  # the first that would be drawn
    (fewer / "train" / "cross" / "03.png").unlink()
    done = csml("report", str(moved), "--data", str(fewer), "--figures", str(tmp_path / "figures"))
    assert done.returncode == 0, done.stderr
    page = (moved / "report.html").read_text()
    assert "has changed since the training" in page and 'id="maps"' in page and 'id="omega"' not in page


def test_mixtures_of_both_directions_tell_their_own_lambda(runs: Path) -> None:
    config = config_of(read_runs([str(runs / "csml")])[0])
    config = replace(config, views=replace(config.views, symmetric=True, small_crops=0))
    images = open_data(config.data, config.images).train
    (row,) = draw_views(config, images, None, np.array([3]))
    lambdas = [float(title.split("= ")[1]) for title, _ in row if title.startswith("mixed")]
    assert len(lambdas) == 2 and all(0 < value <= 1 for value in lambdas)


def test_what_cannot_be_reported_is_one_line(tmp_path: Path) -> None:
    for words, problem in (
        ([str(tmp_path)], "is not a run directory"),
        ([str(tmp_path), "--points", "0"], "points: at least 1"),
    ):
        done = csml("report", *words)
        assert done.returncode == 2 and problem in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_texts_above_the_pictures_hold_for_one_search_and_several_pictures_in_a_row() -> None:
    page = asset("report.html")
    assert "anchors</abbr>, a column per search." in page and "several searches" not in page
    assert "Each group of views belongs to one picture" in page


def test_without_labels_the_first_sentence_says_what_it_learnt_from(runs: Path) -> None:
    one, *_ = read_runs([str(runs / "csml")])
    bare = replace(one, results={}, metrics=[])
    images = json.loads((runs / "csml" / "run.json").read_text())["images"]
    assert headline([bare], labeled=False).startswith(f"csml learnt from {images:,} pictures without labels")
    assert "not measured yet" in headline([bare])


def tuned_with(run: FinishedRun, name: str, **result: Any) -> FinishedRun:
    """A fine-tuned run with such a result."""
    own = {"labels": 32, "how": "spread", "tried": [], **result}
    return replace(run, name=name, command="finetune", metrics=[], results={"finetune": own})


def test_a_classifier_without_test_images_is_told_by_its_estimate(runs: Path) -> None:
    """It learnt from labels; the sentence said that there were none."""
    one, *_ = read_runs([str(runs / "csml")])
    sure = tuned_with(one, "tuned-001", expected=0.902, error=0.061)
    assert headline([sure], labeled=False) == (
        "tuned-001 learnt from 32 labels and is expected to be right on 90 ± 6 of 100 such pictures, "
        "by cross-validation."
    )
    few = tuned_with(one, "tuned-002", expected=None, error=None)
    assert headline([few], labeled=False) == "tuned-002 learnt from 32 labels, too few to estimate its accuracy."
    tried = [{"how": "spread", "accuracy": 0.883, "error": 0.061}, {"how": "logistic", "accuracy": 0.8, "error": 0.07}]
    page = render(Content([tuned_with(one, "tuned-001", expected=0.902, error=0.061, tried=tried)]))
    assert "no labels, so there is nothing to count" not in page
    assert "<td>spread</td><td>88 ± 6</td><td>chosen</td>" in page and "<dt>cross-validation</dt>" in page


def test_a_classifier_is_told_with_its_labels_and_what_it_has_to_beat(runs: Path) -> None:
    one, *_ = read_runs([str(runs / "csml")])
    tuned = tuned_with(one, "tuned", top1=0.7, confusion=[[5, 1], [2, 2]])
    assert headline([tuned]) == (
        "tuned recognises 70 of 100 test pictures after learning from 32 labels; always guessing the largest class 60."
    )
    base = replace(one, name="base", metrics=[], results={"knn": {"accuracy": {"20": 0.8}}})
    base.results["knn"]["baselines"] = {"accuracy": {"chance": {"20": 0.6}}}
    assert headline([base, tuned]) == (
        "base recognises 80 of 100 test pictures by their neighbours; always guessing the largest class 60. "
        "tuned recognises 70 after learning from 32 labels."
    )
    (chance,) = baseline_rows([base, tuned])  # one row for both
    assert chance["scores"] == {"20-NN": 60, "few labels (32)": 60} and chance["name"] == "largest class"
    assert overview([tuned]) is None  # a chart of a single bar


def test_the_terms_are_those_of_the_page() -> None:
    assert occurs("k-NN", "<p>20-NN</p>") and occurs("loss", "<b>Loss</b>") and occurs("AP", "<td>AP50</td>")
    assert not occurs("AP", "<img alt='AP'>a map") and not occurs("turnover", "<p>loss</p>")
    assert meaning_of("20-NN") == TERMS["k-NN"] and meaning_of("AP50") == TERMS["AP"]
    assert meaning_of("maps of apples") is None


def test_runs_beside_each_other_are_named_by_what_they_share(runs: Path) -> None:
    one, *_ = read_runs([str(runs / "csml")])
    named = [replace(one, name=name) for name in ("leaves-seed-0", "leaves-seed-1")]
    assert group_name(named) == "leaves" and group_name(named[:1]) == "leaves-seed-0"
    assert group_name([replace(one, name=name) for name in ("a", "b")]) == "a"


def test_no_name_of_a_chart_is_cut_off(tmp_path: Path) -> None:
    names = [f"tomato_common_mosaic_virus_{number}" for number in range(12)]
    counts = [Series(name, names, [float(row == column) for column in range(12)]) for row, name in enumerate(names)]
    matrix = Chart("confusions", "matrix", counts, x="predicted", y="actual", labels=tuple(names))
    bars = Chart("bars", "bars", [Series("run", names, [50.0] * 12)], y="%")
    page = tmp_path / "charts.html"
    drawn = "".join(map(as_svg, (matrix, bars)))
    page.write_text(f"<meta charset=utf-8><style>{asset('style.css')}{asset('report.css')}</style>{drawn}")
    with browse(page.as_uri(), drawn="svg") as visit:
        cut = """() => [...document.querySelectorAll("svg text")].filter((text) => {
            const word = text.getBoundingClientRect(), chart = text.ownerSVGElement.getBoundingClientRect();
            const wide = word.left < chart.left || word.right > chart.right;
            return wide || word.top < chart.top || word.bottom > chart.bottom;
        }).map((text) => text.textContent)"""
        assert visit.page.evaluate(cut) == []
