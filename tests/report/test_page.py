"""The report in a real browser, and what it is made of."""

import json
from pathlib import Path

import pytest
import yaml
from PIL import Image

from browser import browse, place_of
from conftest import csml
from csml.errors import CsmlError
from csml.report.charts import Chart, Series, as_figure, as_plotly
from csml.report.html import as_script
from csml.report.runs import read_runs
from csml.report.scores import overview, summary
from csml.training.metrics import read_metrics
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
            "Results", "Map", "Neighbours as Ω evolved", "Test images and what the network finds alike", "Classes",
            "Views as the network sees them", "Training", "Settings",
        ]  # fmt: skip


def test_map_and_curves_have_as_many_points_as_there_are_images_and_epochs(report: Path, runs: Path) -> None:
    with browse(report.as_uri()) as visit:
        count = "id => document.getElementById(id).data.reduce((sum, trace) => sum + trace.x.length, 0)"
        for number in range(3):
            assert visit.page.evaluate(count, f"map-{number}") == 60
            assert visit.page.evaluate(f"document.getElementById('map-{number}').data.length") == 5  # classes
        figure = visit.page.locator("figure", has=visit.page.get_by_text("20-NN on test images", exact=True))
        curves = figure.locator(".chart").get_attribute("id")
        traces = visit.page.evaluate("id => document.getElementById(id).data.map(t => [t.name, t.y])", curves)
        assert [name for name, _ in traces] == ["moco-v2", "csml"]
        for name, values in traces:
            logged = [record["knn20"] for record in read_metrics(runs / name / "metrics.jsonl")]
            assert values == pytest.approx([100 * value for value in logged])


def test_pointing_at_a_dot_shows_its_picture_and_a_click_its_neighbours(report: Path) -> None:
    with browse(report.as_uri()) as visit:
        page = visit.page
        page.locator("#map-1").scroll_into_view_if_needed()
        page.mouse.move(*place_of(page, "map-1", 2, 3))
        page.wait_for_selector("#panel-1 .hovered[data-row]")
        row = int(page.get_attribute("#panel-1 .hovered", "data-row"))
        name = page.evaluate("row => nameOf(data.maps[1], row)", row)
        assert page.locator("#panel-1 .hovered .name").text_content() == name
        style = page.locator("#panel-1 .hovered .thumb").evaluate("e => getComputedStyle(e).backgroundImage")
        assert style.startswith('url("data:image/webp')
        page.mouse.click(*place_of(page, "map-1", 2, 3))
        page.wait_for_selector("#panel-1 .clicked[data-row]")
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
        assert visit.page.locator(".chart:not([aria-label])").count() == 0
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


def test_a_folder_of_runs_stands_for_all_of_them(runs: Path) -> None:
    assert {run.name for run in read_runs([str(runs)])} == {"csml", "moco-v2", "tuned"}
    with pytest.raises(CsmlError, match="is not a run directory"):
        read_runs([str(runs / "photos")])


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


def test_json_in_a_page_cannot_end_its_script() -> None:
    text = "</script><script>alert(1)</script>&\u2028"
    script = str(as_script({"name": text}))
    assert "<" not in script and "&" not in script and "\u2028" not in script
    assert json.loads(script) == {"name": text}


@pytest.mark.parametrize("kind", ["lines", "bars", "points", "matrix"])
def test_a_chart_is_drawn_twice_from_the_same_numbers(kind: str) -> None:
    series = [Series("one", [1, 2, 3], [1.0, 2.0, 3.0]), Series("two", [1, 2, 3], [3.0, 1.0, 2.0])]
    chart = Chart("T", kind, series, x="x", y="y", labels=["a", "b", "c"])  # type: ignore[arg-type]
    drawn = as_plotly(chart)["data"]
    axes = as_figure(chart).axes[0]
    if kind == "matrix":
        assert drawn[0]["z"] == [[1, 2, 3], [3, 1, 2]]
        assert axes.images[0].get_array().tolist() == drawn[0]["z"]
    elif kind == "bars":
        assert [patch.get_height() for patch in axes.patches] == [*drawn[0]["y"], *drawn[1]["y"]]
    else:
        assert [line.get_ydata().tolist() for line in axes.lines] == [drawn[0]["y"], drawn[1]["y"]]
    assert chart.told().startswith("T")
