"""The test of a detector as text and tables, for any kind of page."""

from typing import Any, NamedTuple

from csml.evaluation.detection_errors import KINDS


class Section(NamedTuple):
    """A part of a report."""

    title: str
    text: str
    columns: list[str]
    rows: list[list[str]]


def detection_sections(result: dict[str, Any]) -> list[Section]:
    """Tables of detect.json: scores, classes, errors by kind, confusion matrix, best and worst images."""
    scored = {kind: result[kind] for kind in ("box", "mask") if kind in result}
    names = [name for name in scored["box"] if not name.startswith("per_class")]
    sections = [
        Section(
            "Scores",
            f"{result['images']} test images; average precision in percent.",
            ["", *names],
            [[kind, *(_percent(values[name]) for name in names)] for kind, values in scored.items()],
        ),
        Section(
            "Classes",
            "Average precision of boxes, over IoU 0.5 to 0.95 (AP) and at IoU 0.5 (AP50).",
            ["class", "AP", "AP50"],
            [[name, *(_percent(value) for value in row)] for name, row in class_rows(result)],
        ),
    ]
    errors = result.get("errors")
    if errors is None:
        return sections
    threshold = result["threshold"]
    chosen = f"Detections with a score of at least {threshold['score']:.2f} ({threshold['why']})."
    kinds = ["right", *KINDS, "missed"]
    counts = {"all": errors["total"], **errors["by_class"]}
    extremes = ["image", "F1", *kinds]
    confusion = result["confusion"]
    return [
        *sections,
        Section(
            "Errors by kind",
            f"{chosen} class: wrong class; place: IoU 0.1 to 0.5; duplicate: already detected.",
            ["class", *kinds],
            [[name, *(str(row[kind]) for kind in kinds)] for name, row in counts.items()],
        ),
        Section(
            "Confusions",
            f"{chosen} Rows: true class; columns: detected class.",
            ["", *confusion["names"]],
            [[name, *map(str, row)] for name, row in zip(confusion["names"], confusion["counts"], strict=True)],
        ),
        *(
            Section(f"{which.capitalize()} images", chosen, extremes, [_image_row(row, kinds) for row in result[which]])
            for which in ("worst", "best")
        ),
    ]


def class_rows(result: dict[str, Any]) -> list[tuple[str, tuple[float | None, float | None]]]:
    """AP and AP50 of the boxes of each class."""
    box = result["box"]
    halves = box.get("per_class_AP50") or {}
    return [(name, (value, halves.get(name))) for name, value in (box.get("per_class") or {}).items()]


def _image_row(row: dict[str, Any], kinds: list[str]) -> list[str]:
    return [row["image"], f"{row['f1']:.2f}", *(str(row[kind]) for kind in kinds)]


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
