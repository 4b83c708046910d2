"""Tests of detectors: scores by class, precision over recall, confusions, errors by kind, best and worst images."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from csml.evaluation.detection_errors import KINDS
from csml.evaluation.detection_report import Section, class_rows, detection_sections
from csml.reporting.charts import Chart, Series
from csml.reporting.pictures import data_url
from csml.reporting.runs import FinishedRun
from csml.reporting.scores import MOST_CLASSES, confusion_chart
from csml.reporting.seed_groups import group_by_seed, group_name, mean_of
from csml.reporting.svg import nonempty_charts

_MOST_CURVES = 8
_DRAWN = ("Confusions",)
"""Sections that are replaced by a chart."""


@dataclass(frozen=True)
class DetectorTest:
    """The content of the page about the test of one detector."""

    name: str
    sections: list[Section]
    charts: list[Chart]
    pictures: list[tuple[str, str]]
    """title and data URL of sheets: annotated objects beside detections"""
    threshold: str
    """the score threshold for showing or counting a detection, and why"""


def detector_tests(runs: list[FinishedRun], most: int) -> list[DetectorTest]:
    """The tests of the first `most` runs that have one."""
    tested = [run for run in runs if "box" in run.results.get("detect", {})]
    return [_test(run, run.results["detect"]) for run in tested[:most]]


def comparisons(runs: list[FinishedRun]) -> list[Chart]:
    """AP50 by class and errors by kind, all detectors in one chart, with means over seeds; only detectors with the
    classes of the first one are compared."""
    tested = [run for run in runs if "box" in run.results.get("detect", {})]
    halves = {run.root: {name: half for name, (_, half) in class_rows(run.results["detect"])} for run in tested}
    first = next(iter(halves.values()), {})
    known = {name: value for name, value in first.items() if value is not None}
    order = sorted(known, key=lambda name: known[name])[:MOST_CLASSES]
    alike = group_by_seed([run for run in tested if halves[run.root].keys() == first.keys()])
    by_class = [
        Series(group_name(members), order, [_mean([halves[run.root][name] for run in members]) for name in order])
        for members in alike
    ]
    kinds = [*KINDS, "missed"]
    counted = [[run for run in members if "errors" in run.results["detect"]] for members in alike]
    errors = [
        Series(
            group_name(members),
            kinds,
            [_mean([run.results["detect"]["errors"]["total"][kind] for run in members]) for kind in kinds],
        )
        for members in counted
        if members
    ]
    charts = [Chart("AP50 by class, worst first", "bars", by_class, y="%")] if order else []
    charts += [Chart("Errors of detectors by kind", "bars", errors, y="number")] if errors else []
    return nonempty_charts(charts)


def _mean(values: list[float | None]) -> float | None:
    return mean_of([value for value in values if value is not None])


def _test(run: FinishedRun, result: dict[str, Any]) -> DetectorTest:
    sections = [section for section in detection_sections(result) if section.title not in _DRAWN]
    sheets = (
        ("Worst images", run.files.worst_detections),
        ("Best images", run.files.best_detections),
        ("Images from all of the test", run.files.detection_sheet),
    )
    pictures = [(title, data_url(Image.open(file).convert("RGB"), 70)) for title, file in sheets if file.exists()]
    chosen = result.get("threshold", {"score": 0.5, "why": "fixed"})
    charts: list[Chart] = []
    if "curves" in result:
        charts.append(_curves(run.name, result["curves"]))
    if "confusion" in result:
        counts, names = result["confusion"]["counts"], result["confusion"]["names"]
        charts.append(confusion_chart(f"Confusions of {run.name}", counts, names, x="detected class", y="true class"))
    return DetectorTest(
        run.name, sections, nonempty_charts(charts), pictures, f"at least {chosen['score']:.2f} ({chosen['why']})"
    )


def _curves(name: str, curves: dict[str, dict[str, list[float]] | None]) -> Chart:
    """Precision over recall of each class; if there are many, of the first few, and the mean of all."""
    known = {one: curve for one, curve in curves.items() if curve is not None}
    series = [Series(one, _percent(c["recall"]), _percent(c["precision"])) for one, c in known.items()]
    if len(series) > 1:
        mean = _percent(np.mean([curve["precision"] for curve in known.values()], axis=0).tolist())
        series = [Series(f"mean of {len(series)} classes", series[0].x, mean), *series[:_MOST_CURVES]]
    return Chart(f"Precision over recall of {name} (IoU ≥ 0.5)", "lines", series, x="recall, %", y="precision, %")


def _percent(shares: list[float]) -> list[float | None]:
    return [round(100 * share, 2) for share in shares]
