"""The content of a report, gathered from the runs before the page is rendered."""

import logging
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from csml.config import Layer, PretrainConfig, configure
from csml.data.open import open_data
from csml.errors import CsmlError
from csml.extras import MissingExtra
from csml.reporting.baselines import baseline_rows, shortfalls
from csml.reporting.charts import Chart, Series
from csml.reporting.detectors import DetectorTest, comparisons, detector_tests
from csml.reporting.gallery import Tile, evolution, has_neighbors, nearest_of_tests, one_per_class, tile
from csml.reporting.headline import near
from csml.reporting.mapped_images import MappedImages, can_be_mapped, is_labeled, map_images, per_class
from csml.reporting.pictures import Sheets, data_url, thumbnail_sheets
from csml.reporting.runs import FinishedRun
from csml.reporting.scores import (
    MOST_CLASSES,
    by_stage,
    classifier_charts,
    confusion_chart,
    summary,
    training_curves,
)
from csml.reporting.seed_groups import overview
from csml.reporting.svg import nonempty_charts
from csml.reporting.views_sheet import draw_views

log = logging.getLogger("csml")

_MOST_MAPS = 4
_EXAMPLE_CLASSES, _EXAMPLES = 6, 6
_VIEW_ROWS = 4
_SEARCHES = 5


@dataclass
class Collection:
    """The images of a map; runs on the same images share them."""

    names: list[str]
    labels: list[int]
    classes: tuple[str, ...]
    sheets: Sheets


@dataclass
class RunMap:
    """The map of a run over a collection."""

    name: str
    collection: int
    points: np.ndarray
    clusters: np.ndarray
    neighbors: np.ndarray
    settings: str


@dataclass
class Examples:
    """Test images of a class that the last run classifies correctly and the first wrongly, or a single run wrongly."""

    title: str
    tiles: list[Tile]


@dataclass
class Content:
    """Everything that a report shows."""

    runs: list[FinishedRun]
    tasks: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    baselines: list[dict[str, Any]] = field(default_factory=list)
    scores: list[Chart] = field(default_factory=list)
    curves: list[Chart] = field(default_factory=list)
    collections: list[Collection] = field(default_factory=list)
    maps: list[RunMap] = field(default_factory=list)
    evolutions: list[tuple[str, list[dict[str, Any]]]] = field(default_factory=list)
    nearest: list[dict[str, Any]] = field(default_factory=list)
    views: list[tuple[str, list[list[tuple[str, str]]]]] = field(default_factory=list)
    classes: list[Chart] = field(default_factory=list)
    examples: list[Examples] = field(default_factory=list)
    confusions: list[Chart] = field(default_factory=list)
    comparisons: list[Chart] = field(default_factory=list)
    detectors: list[DetectorTest] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def labeled(self) -> bool:
        """Whether any pictures of the report have labels."""
        return not self.collections or any(one.labels for one in self.collections)

    def charts(self) -> list[Chart]:
        maps = [self._map_chart(one) for one in self.maps]
        tested = [chart for test in self.detectors for chart in test.charts]
        return [*self.scores, *self.curves, *maps, *self.classes, *self.confusions, *self.comparisons, *tested]

    def _map_chart(self, one: RunMap) -> Chart:
        """The map as a chart for PNG and SVG; on the page it is interactive."""
        collection = self.collections[one.collection]
        labels = np.array(collection.labels)
        groups = [(name, labels == label) for label, name in enumerate(collection.classes) if (labels == label).any()]
        if not groups:
            groups = [(f"cluster {c + 1}", one.clusters == c) for c in np.unique(one.clusters).tolist()]
        series = [Series(name, *one.points[rows].T.tolist()) for name, rows in groups]
        return Chart(f"Map of {one.name}", "points", series)


def gather(runs: list[FinishedRun], points: int, tests: int, seed: int) -> Content:
    """Gather the content of a report; a run with a backbone shows up to `points` images and `tests` test images."""
    content = Content(runs)
    content.tasks, content.rows = summary(runs)
    content.baselines, content.notes = baseline_rows(runs), shortfalls(runs)
    content.scores = [chart for chart in (overview(runs), by_stage(runs)) if chart is not None]
    content.curves = training_curves(runs)
    shown = _shown(content, [run for run in runs if can_be_mapped(run)])
    seen: list[MappedImages] = []
    for run in shown:
        try:
            seen.append(map_images(run, points, tests, seed))
            if run.command == "pretrain":
                _pretraining(content, run)
        except MissingExtra:
            raise
        except CsmlError as error:  # the rest of the report is still useful
            log.warning("%s is shown without images: %s", run.name, error)
            content.notes.append(f"{run.name} is shown without images: {near(str(error))}")
    _maps(content, seen)
    _tests(content, [one for one in seen if one.tests is not None])
    for chart in classifier_charts(runs):
        (content.confusions if chart.kind == "matrix" else content.classes).append(chart)
    content.scores, content.curves = nonempty_charts(content.scores), nonempty_charts(content.curves)
    content.classes, content.confusions = nonempty_charts(content.classes), nonempty_charts(content.confusions)
    content.comparisons, content.detectors = comparisons(runs), detector_tests(runs, _MOST_MAPS)
    return content


def _shown(content: Content, runs: list[FinishedRun]) -> list[FinishedRun]:
    """The runs that get a map; if there are many, one from each parent folder, such as one seed of each variation."""
    if len(runs) <= _MOST_MAPS:
        return runs
    firsts = {run.root.parent: run for run in reversed(runs)}
    chosen = ([run for run in runs if run in firsts.values()] + [r for r in runs if r not in firsts.values()])[
        :_MOST_MAPS
    ]
    content.notes.append(f"Maps and pictures are shown only for {', '.join(run.name for run in chosen)}.")
    return chosen


def _maps(content: Content, seen: list[MappedImages]) -> None:
    keys: list[tuple[str, str]] = []
    for one in seen:
        if one.key() not in keys:
            keys.append(one.key())
            ids = np.arange(len(one.images))
            sheets = thumbnail_sheets(one.images, ids, _thumbnail_side(len(ids)))
            labels = one.labels.tolist() if is_labeled(one) else []
            names = [one.images.name(int(id)) for id in ids]
            content.collections.append(Collection(names, labels, one.classes, sheets))
        place = keys.index(one.key())
        made = one.map
        content.maps.append(RunMap(one.run.name, place, made.points, made.clusters, made.neighbors, made.settings))


def _thumbnail_side(images: int) -> int:
    """Side of a thumbnail in pixels; ten thousand images take less than ten megabytes."""
    return 64 if images <= 1500 else 48 if images <= 4000 else 32


def _pretraining(content: Content, run: FinishedRun) -> None:
    config = config_of(run)
    images = open_data(config.data, config.images).train
    omegas = run.omegas(most=_SEARCHES)
    if omegas and run.fingerprint() not in (None, images.fingerprint()):
        content.notes.append(f"The data of {run.name} has changed since the training, so its neighbours are not shown.")
        omegas = []
    rows = evolution(images, omegas) if omegas else []
    if rows:
        content.evolutions.append((run.name, rows))
    omega = omegas[-1][1] if omegas else None
    anchors = one_per_class(images, _VIEW_ROWS, None if omega is None else has_neighbors(omega))
    drawn = draw_views(config, images, omega, np.array(anchors))
    content.views.append((run.name, [[(title, data_url(picture)) for title, picture in row] for row in drawn if row]))


def _tests(content: Content, seen: list[MappedImages]) -> None:
    """Add everything about test images, for the runs on the same images as the first."""
    others = [one.run.name for one in seen if one.key() != seen[0].key()]
    if others:
        content.notes.append(
            f"Test images are compared only between runs on the same data as the first, without {', '.join(others)}."
        )
    seen = [one for one in seen if one.key() == seen[0].key()]
    if not seen:
        return
    content.nearest = nearest_of_tests(seen)
    stages = [
        Series(s.run.name, list(s.tests.by_stage), [100 * v for v in s.tests.by_stage.values()])
        for s in seen
        if s.tests
    ]
    content.scores.append(Chart("20-NN accuracy by stage", "lines", stages, x="stage", y="%"))
    shares = [per_class(one.tests, one.classes) for one in seen if one.tests]
    order = sorted(shares[0], key=lambda name: shares[0][name] - (shares[-1][name] if len(shares) > 1 else 0))
    order = order[:MOST_CLASSES]
    title = "Accuracy by class, most improved first" if len(seen) > 1 else "Accuracy by class, worst first"
    series = [
        Series(one.run.name, order, [100 * share[name] for name in order])
        for one, share in zip(seen, shares, strict=True)
    ]
    content.classes.append(Chart(f"{title} (20-NN)", "bars", series, y="%"))
    content.examples = _examples(seen, order)
    for one in seen:
        content.confusions.append(_confusion(one))


def _examples(seen: list[MappedImages], order: list[str]) -> list[Examples]:
    first, last = seen[0].tests, seen[-1].tests
    assert first is not None and last is not None
    found = []
    for name in order[:_EXAMPLE_CLASSES]:
        of = first.labels == seen[0].classes.index(name)
        if len(seen) > 1:
            rows = of & (first.predicted != first.labels) & (last.predicted == last.labels)
            title = f"{name}: right in {seen[-1].run.name}, wrong in {seen[0].run.name}"
        else:
            rows, title = of & (first.predicted != first.labels), f"{name}: classified wrongly"
        tiles = []
        for row in np.flatnonzero(rows)[:_EXAMPLES].tolist():
            shown = tile(first.images, row)
            tiles.append(Tile(shown.url, f"{shown.name}, classified as {seen[0].classes[first.predicted[row]]}"))
        if tiles:
            found.append(Examples(title, tiles))
    return found


def _confusion(one: MappedImages) -> Chart:
    assert one.tests is not None
    size = len(one.classes)
    counts = np.bincount(one.tests.labels * size + one.tests.predicted, minlength=size**2).reshape(size, size)
    return confusion_chart(f"Confusions of {one.run.name} (20-NN)", counts.tolist(), one.classes)


def config_of(run: FinishedRun) -> PretrainConfig:
    """The settings of a pre-training run."""
    try:
        return configure(PretrainConfig, Layer(run.settings, str(run.root)))
    except CsmlError as error:
        raise CsmlError(f"{run.files.config}: {error}") from error
