"""Runs and their report in a real browser; all tests here share the same runs."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from browser import browse
from conftest import csml
from csml.data.open import open_data
from csml.errors import CsmlError
from csml.reporting.charts import Chart, Series
from csml.reporting.content import config_of
from csml.reporting.detectors import comparisons, detector_tests
from csml.reporting.headline import headline
from csml.reporting.html import asset
from csml.reporting.kinds import kind_name, kinds_of, mean_rows, overview
from csml.reporting.runs import read_runs
from csml.reporting.scores import summary
from csml.reporting.svg import as_svg
from csml.reporting.terms import occurs
from csml.reporting.views_sheet import draw_views
from csml.runs.metrics import read_metrics
from runs_to_show import NASTY, make_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    return make_runs(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def report(runs: Path) -> Path:
    page = runs / "out.html"
    names = [str(runs / name) for name in ("moco-v2", "csml", "tuned")]
    done = csml("report", *names, "--output", str(page), "--figures", str(runs / "figures"))
    assert done.returncode == 0, done.stderr
    return page


def test_the_page_opens_from_disk_without_an_error_and_asks_for_nothing(report: Path) -> None:
    with browse(report.as_uri()) as visit:
        assert visit.problems == []
        assert [url for url in visit.requests if not url.startswith(("data:", "blob:"))] == [report.as_uri()]
        sections = visit.page.locator("h2").all_text_contents()
        assert sections == [
            "Test pictures and what the network finds most similar", "Results", "Map", "Neighbours during training",
            "Classes", "Views as the network sees them", "Training", "Settings", "Terms",
        ]  # fmt: skip


def test_map_and_curves_have_as_many_points_as_there_are_images_and_epochs(report: Path, runs: Path) -> None:
    with browse(report.as_uri()) as visit:
        count = "id => (document.getElementById(id).innerHTML.match(/h0/g) || []).length"
        for number in range(3):
            assert visit.page.evaluate(count, f"map-{number}") == 60
            assert visit.page.locator(f"#map-{number} path").count() == 5  # classes
        figure = visit.page.locator("figure", has=visit.page.get_by_text("20-NN on test images", exact=True))
        told = figure.locator("svg polyline ~ * title").all_text_contents()
        for name in ("moco-v2", "csml"):
            logged = [record["knn20"] for record in read_metrics(runs / name / "metrics.jsonl")]
            for epoch, value in enumerate(logged, 1):
                assert f"{name}, epoch {epoch}: {100 * value:.4g} %" in told


def test_without_javascript_every_chart_and_the_map_are_there(report: Path) -> None:
    page = report.read_text("utf-8")
    before_scripts = page[: page.index("<script")]
    assert len(re.findall(r"M[\d.]+ [\d.]+h0", before_scripts)) == 3 * 60
    assert before_scripts.count('<svg class="drawn"') >= 8
    assert "plotly" not in page.lower() and len(page) < 1e6


def test_the_first_thing_on_the_page_is_the_result_with_what_it_has_to_beat(report: Path) -> None:
    with browse(report.as_uri(), width=1440) as visit:
        title = visit.page.locator("h1")
        assert "of 100 test pictures by their neighbours" in title.text_content()
        for name in ("raw pixels", "untrained network", "always guessing the largest class", "moco-v2", "csml"):
            assert name in title.text_content()
        box = visit.page.locator("#nearest ~ .scroll img.tile").first.bounding_box()
        assert box["y"] < 900  # the pictures begin on the first screen
        mark = "e => getComputedStyle(e, '::after').content"
        assert visit.page.locator(".marked.yes").first.evaluate(mark) == '"✓"'
        assert visit.page.locator(".marked.no").first.evaluate(mark) == '"✗"'


def test_no_path_of_this_machine_stands_in_the_page(report: Path, runs: Path) -> None:
    assert str(runs) not in report.read_text("utf-8")


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
    assert [len(kind) for kind in kinds_of(seeds)] == [2]
    assert headline(seeds).startswith("csml recognises 62 ± 3 of 100 test pictures by their neighbours")
    (row,) = mean_rows(seeds, ["20-NN"])
    assert row["scores"] == {"20-NN": "62.0 ± 2.8"}


def test_without_labels_the_first_sentence_says_what_it_learnt_from(runs: Path) -> None:
    one, *_ = read_runs([str(runs / "csml")])
    bare = replace(one, results={}, metrics=[])
    images = json.loads((runs / "csml" / "run.json").read_text())["images"]
    assert headline([bare], labeled=False).startswith(f"csml learnt from {images:,} pictures without labels")
    assert "not measured yet" in headline([bare])


def test_the_terms_are_those_of_the_page() -> None:
    assert occurs("k-NN", "<p>20-NN</p>") and occurs("loss", "<b>Loss</b>") and occurs("AP", "<td>AP50</td>")
    assert not occurs("AP", "<img alt='AP'>a map") and not occurs("turnover", "<p>loss</p>")


def test_runs_beside_each_other_are_named_by_what_they_share(runs: Path) -> None:
    one, *_ = read_runs([str(runs / "csml")])
    named = [replace(one, name=name) for name in ("leaves-seed-0", "leaves-seed-1")]
    assert kind_name(named) == "leaves" and kind_name(named[:1]) == "leaves-seed-0"
    assert kind_name([replace(one, name=name) for name in ("a", "b")]) == "a"


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


def test_pointing_at_a_dot_shows_its_picture_and_a_click_its_neighbours(report: Path) -> None:
    with browse(report.as_uri()) as visit:
        page = visit.page
        page.locator("#map-1").scroll_into_view_if_needed()
        page.mouse.move(*page.evaluate("screenPlace(1, 27)"))
        assert page.get_attribute("#panel-1 .clicked", "data-row") == "0"  # something is there from the start
        page.wait_for_selector("#panel-1 .hovered:not([data-row='0'])")
        row = int(page.get_attribute("#panel-1 .hovered", "data-row"))
        name = page.evaluate("row => nameOf(data.maps[1], row)", row)
        assert page.locator("#panel-1 .hovered .name").text_content() == name
        style = page.locator("#panel-1 .hovered .thumb").evaluate("e => getComputedStyle(e).backgroundImage")
        assert style.startswith('url("data:image/webp')
        page.mouse.click(*page.evaluate("screenPlace(1, 27)"))
        page.wait_for_selector("#panel-1 .clicked:not([data-row='0'])")
        neighbors = page.locator("#panel-1 .clicked button")
        clicked = int(page.get_attribute("#panel-1 .clicked", "data-row"))
        expected = page.evaluate(
            "row => data.maps[1].neighbors[row].map(other => nameOf(data.maps[1], other))", clicked
        )
        assert neighbors.evaluate_all("all => all.map(e => e.title)") == expected
        assert visit.problems == []


def test_the_map_can_be_walked_with_the_keyboard(report: Path) -> None:
    with browse(report.as_uri()) as visit:
        visit.page.focus("#next-0")
        visit.page.keyboard.press("Enter")
        assert visit.page.get_attribute("#panel-0 .clicked", "data-row") == "1"
        visit.page.keyboard.press("Tab")  # the first neighbour
        visit.page.keyboard.press("Enter")
        first = visit.page.evaluate("data.maps[0].neighbors[1][0]")
        assert visit.page.get_attribute("#panel-0 .clicked", "data-row") == str(first)


def test_file_names_are_text_wherever_they_are(report: Path) -> None:
    with browse(report.as_uri()) as visit:
        row = visit.page.evaluate("name => data.collections[0].names.findIndex(n => n.includes(name))", NASTY)
        assert row >= 0
        visit.page.evaluate("row => show(0, row, true)", row)
        assert NASTY in visit.page.locator("#panel-0 .hovered .name").text_content()
        assert visit.page.locator('img[src="x"]').count() == 0
        assert visit.page.locator(f'img[title*="{NASTY}"]').count() > 0
        assert visit.problems == []


@pytest.mark.parametrize("dark", [False, True])
def test_on_a_phone_nothing_sticks_out_and_every_picture_has_words(report: Path, dark: bool) -> None:
    with browse(report.as_uri(), width=390, height=800, dark=dark) as visit:
        assert visit.page.evaluate("document.scrollingElement.scrollWidth") <= 390
        assert visit.page.locator("img:not([alt])").count() == 0
        assert visit.page.locator("svg:not([aria-label])").count() == 0
        background, ink = visit.page.evaluate(
            "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
        )
        light = sum(map(int, background.strip("rgb()").split(","))) > sum(map(int, ink.strip("rgb()").split(",")))
        assert light != dark


def test_frames_tell_right_from_wrong(report: Path, runs: Path) -> None:
    with browse(report.as_uri()) as visit:
        tiles = visit.page.locator("#omega ~ .scroll").first.locator("img.tile")
        told = tiles.evaluate_all(
            "all => all.map(e => [e.classList.contains('right'), e.classList.contains('wrong'), e.title])"
        )
    anchors = [title for right, wrong, title in told if not right and not wrong]
    assert len(anchors) == 5
    anchor = ""
    for right, wrong, title in told:
        label = title.rsplit("(", 1)[1]
        if not right and not wrong:
            anchor = label
        else:
            assert right == (label == anchor) and wrong == (label != anchor)


def test_figures_are_written_for_paper(report: Path, runs: Path) -> None:
    names = {path.stem for path in (runs / "figures").glob("*.png")}
    assert {path.stem for path in (runs / "figures").glob("*.svg")} == names
    assert {"all-tasks", "map-of-csml", "loss-of-csml", "linear-accuracy-by-stage", "20-nn-accuracy-by-stage"} <= names
    assert all(Image.open(runs / "figures" / f"{name}.png").width > 300 for name in names)


def test_a_backbone_s_row_has_the_scores_of_what_started_from_it(runs: Path) -> None:
    found = read_runs([str(runs / name) for name in ("moco-v2", "csml", "tuned")])
    tasks, rows = summary(found)
    assert [row["name"] for row in rows] == ["moco-v2", "csml"]
    tuned = json.loads((runs / "tuned/finetune.json").read_text())
    assert rows[1]["scores"]["few labels (30)"] == pytest.approx(100 * tuned["top1"])
    assert {"5-NN", "linear, stage 3", "linear, stage 4", "few labels (30)"} == set(tasks)
    chart = overview(found)
    assert chart is not None and [series.name for series in chart.series] == ["moco-v2", "csml"]


def test_baselines_stand_in_the_table_above_the_runs(report: Path) -> None:
    page = re.sub(r"<abbr[^>]*>", "", report.read_text("utf-8"))
    rows = [
        page.index(f'<th scope="row">{name}') for name in ("largest class", "raw pixels", "untrained network", "csml")
    ]
    assert rows == sorted(rows)


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
    assert "moved is shown without images: data: there is no folder" in page and "Loss of moved" in page
    fewer = tmp_path / "fewer"
    shutil.copytree(runs / "photos", fewer)
    (fewer / "train" / "arrow" / "01.png").write_bytes(b"no picture")  # the first that would be drawn
    (fewer / "train" / "cross" / "03.png").unlink()
    done = csml("report", str(moved), "--data", str(fewer), "--figures", str(tmp_path / "figures"))
    assert done.returncode == 0, done.stderr
    page = (moved / "report.html").read_text()
    assert "has changed since the training" in page and 'id="maps"' in page and 'id="omega"' not in page


@pytest.fixture(scope="module")
def detector(runs: Path) -> Path:
    """A detector on drawings, around the backbone of the second run."""
    quick = ["--scenes.synthetic_train", "4", "--scenes.synthetic_val", "2", "--scenes.synthetic_size", "64"]
    quick += ["--schedule.iterations", "2", "--schedule.report_every", "1", "--schedule.test_every", "1"]
    out = runs.parent / "detector"
    done = csml("detect", str(runs / "csml"), "--preset", "small-c4", *quick, "--out", str(out))
    assert done.returncode == 0, done.stderr
    return out


def test_a_detector_s_test_is_shown_with_its_errors_and_both_ends(runs: Path, detector: Path, tmp_path: Path) -> None:
    done = csml("report", str(runs / "csml"), str(detector), "--output", str(tmp_path / "out.html"))
    assert done.returncode == 0, done.stderr
    result = json.loads((detector / "detect.json").read_text())
    with browse((tmp_path / "out.html").as_uri()) as visit:
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


def test_script_in_names_of_runs_and_classes_runs_nothing(runs: Path, detector: Path, tmp_path: Path) -> None:
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
    with browse((tmp_path / "out.html").as_uri()) as visit:
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


def test_mixtures_of_both_directions_tell_their_own_lambda(runs: Path) -> None:
    config = config_of(read_runs([str(runs / "csml")])[0])
    config = replace(config, views=replace(config.views, symmetric=True, small_crops=0))
    images = open_data(config.data, config.images).train
    (row,) = draw_views(config, images, None, np.array([3]))
    lambdas = [float(title.split("= ")[1]) for title, _ in row if title.startswith("mixed")]
    assert len(lambdas) == 2 and all(0 < value <= 1 for value in lambdas)


def test_a_run_without_labels_is_shown_by_clusters(runs: Path, tmp_path: Path) -> None:
    settings = yaml.safe_load((runs / "csml/config.yaml").read_text())
    settings["images"]["labels"] = "none"
    blind = tmp_path / "blind"
    blind.mkdir()
    (blind / "config.yaml").write_text(yaml.safe_dump(settings))
    for name in ("backbone.safetensors", "metrics.jsonl"):
        (blind / name).write_bytes((runs / "csml" / name).read_bytes())
    done = csml("report", str(blind))
    assert done.returncode == 0, done.stderr
    with browse((blind / "report.html").as_uri()) as visit:
        assert visit.page.input_value("#by-0") == "cluster"
        assert visit.page.locator("#by-0 option").count() == 1
        assert visit.problems == []


def test_what_cannot_be_reported_is_one_line(tmp_path: Path) -> None:
    for words, problem in (
        ([str(tmp_path)], "is not a run directory"),
        ([str(tmp_path), "--points", "0"], "points: at least 1"),
    ):
        done = csml("report", *words)
        assert done.returncode == 2 and problem in done.stderr and len(done.stderr.strip().splitlines()) == 1
