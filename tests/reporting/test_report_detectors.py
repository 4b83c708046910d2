"""The report on a detector: its errors, its pictures, the means over seeds; and script in names."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from browser import browse, chromium
from conftest import csml
from csml.reporting.detectors import comparisons, detector_tests
from csml.reporting.headline import headline
from csml.reporting.runs import read_runs
from csml.reporting.seed_groups import overview


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def detector(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A detector on drawings, around the backbone of the second run."""
    quick = ["--scenes.synthetic_train", "4", "--scenes.synthetic_val", "2", "--scenes.synthetic_size", "64"]
    quick += ["--schedule.iterations", "2", "--schedule.report_every", "1", "--schedule.test_every", "1"]
    out = tmp_path_factory.mktemp("detector") / "detector"
    done = csml("detect", str(runs / "csml"), "--preset", "small-c4", *quick, "--out", str(out))
    assert done.returncode == 0, done.stderr
    return out


def test_a_detector_s_test_is_shown_with_its_errors_and_both_ends(
    runs: Path, detector: Path, tmp_path: Path, browser: Any
) -> None:
    done = csml("report", str(runs / "csml"), str(detector), "--output", str(tmp_path / "out.html"))
    assert done.returncode == 0, done.stderr
    result = json.loads((detector / "detect.json").read_text())
    with browse((tmp_path / "out.html").as_uri(), browser=browser) as visit:
        page = visit.page
        assert "synthetic box AP50" in page.locator("#summary ~ .scroll thead").first.text_content()
        widths = page.locator("figure.sheet img").evaluate_all("all => all.map(image => image.naturalWidth)")
        assert len(widths) == 3 and min(widths) > 500  # worst, best, and from all of the test
        assert (
            f"a score of at least {result['threshold']['score']:.2f}"
            in page.locator("#detections ~ p").first.text_content()
        )
        heads = page.locator("#detections ~ details thead tr").evaluate_all(
            "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
        )
        assert ["class", "AP", "AP50"] in heads and any("duplicate" in head for head in heads)
        classes = page.locator("#detections ~ details", has_text="Average precision of boxes, over IoU").locator(
            "tbody th"
        )
        assert classes.all_text_contents() == list(result["box"]["per_class"])
        curves = page.locator("figure", has=page.get_by_text("Precision over recall of detector (IoU ≥ 0.5)"))
        assert curves.locator("polyline").count() >= 1
        matrix = page.locator("figure.matrix", has=page.get_by_text("Confusions of detector", exact=True))
        assert "background" in matrix.text_content()
        for title in ("Learning rate, detection", "AP on test images, detection", "Errors of detectors by kind"):
            assert page.get_by_text(title, exact=True).count() == 1
        assert visit.problems == []


def test_script_in_names_of_runs_and_classes_runs_nothing(
    runs: Path, detector: Path, tmp_path: Path, browser: Any
) -> None:
    script = "<img src=x onerror=alert(1)>"
    photos = tmp_path / "photos"
    shutil.copytree(runs / "photos", photos)
    for part in ("train", "val"):
        (photos / part / "arrow").rename(photos / part / script)
    for source, name in ((runs / "csml", script), (runs / "tuned", f"2{script}"), (detector, f"3{script}")):
        shutil.copytree(source, tmp_path / name)
    for file in (tmp_path / f"2{script}" / "finetune.json", tmp_path / f"3{script}" / "detect.json"):
        file.write_text(file.read_text().replace('"arrow"', json.dumps(script)))
    names = [str(tmp_path / name) for name in (script, f"2{script}", f"3{script}")]
    done = csml("report", *names, "--data", str(photos), "--output", str(tmp_path / "out.html"))
    assert done.returncode == 0, done.stderr
    with browse((tmp_path / "out.html").as_uri(), browser=browser) as visit:
        page = visit.page
        page.evaluate("() => { for (const one of document.querySelectorAll('details')) one.open = true; }")
        page.select_option("#by-0", "cluster")
        page.select_option("#by-0", "class")
        page.evaluate("() => show(0, 0, true)")
        assert script in page.locator("h1").text_content() and script in page.locator("#legend-0").text_content()
        assert script in page.locator("#detections ~ details").first.locator("xpath=..").text_content()
        assert page.locator('img[src="x"]').count() == 0
        assert visit.problems == []


def test_of_many_seeds_charts_show_the_mean(runs: Path, detector: Path) -> None:
    one, *_ = read_runs([str(detector)])
    result = one.results["detect"]
    seeds = []
    for kind, first in (("small", 20.0), ("large", 40.0)):
        for seed in range(3):
            box = {**result["box"], "AP50": first + seed, "per_class_AP50": {"arrow": first + seed, "ring": None}}
            box["per_class"] = {"arrow": 1.0, "ring": None}
            settings = {**one.settings, "seed": seed, "schedule.iterations": first}
            root = Path(kind) / f"seed-{seed}"
            changed = {"detect": {**result, "box": box}}
            seeds.append(replace(one, root=root, name=str(root), settings=settings, results=changed))
    chart = overview(seeds)
    assert chart is not None and chart.title == "All tasks, mean over seeds"
    assert [(series.name, series.y[series.x.index("synthetic box AP50")]) for series in chart.series] == [
        ("small", 21.0), ("large", 41.0)
    ]  # fmt: skip
    by_class, errors = comparisons(seeds)
    assert [(series.name, series.x, series.y) for series in by_class.series] == [
        ("small", ["arrow"], [21.0]), ("large", ["arrow"], [41.0])
    ]  # fmt: skip
    missed = result["errors"]["total"]["missed"]
    assert [series.y[series.x.index("missed")] for series in errors.series] == [missed, missed]
    assert headline(seeds).startswith("large finds objects with an average precision of 41 ± 1 of 100")
    assert len(detector_tests(seeds, 4)) == 4
