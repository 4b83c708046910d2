"""Figures of a detector's test, as PNG and SVG: precision over recall, confusions, errors by kind."""

from pathlib import Path
from typing import Any

import numpy as np

from csml.evaluation.detection_errors import KINDS
from csml.extras import extra
from csml.files import atomic_write

_MOST_CURVES = 12
_COLOURS = {"right": "#3c9a5f", "class": "#8e5bb5", "place": "#d98c2b", "duplicate": "#4c78b8", "background": "#c8463c",
            "missed": "#8a8a8a"}  # fmt: skip


def draw_figures(errors: dict[str, Any], folder: Path) -> list[Path]:
    """Draw the result of `detection_errors`; returns the files, three figures in two formats."""
    with extra("report", "figures of a detector"):
        from matplotlib.figure import Figure
    written = []
    for name, draw in (("precision-recall", _curves), ("confusion", _confusion), ("errors", _errors)):
        figure = Figure(figsize=(6, 4.5), layout="constrained")
        draw(figure.subplots(), errors)
        for suffix in (".png", ".svg"):
            written.append(folder / f"{name}{suffix}")
            with atomic_write(written[-1]) as path:
                figure.savefig(path, dpi=120, metadata={"Date": None} if suffix == ".svg" else None)
    return written


def _curves(axes: Any, errors: dict[str, Any]) -> None:
    known = {name: curve for name, curve in errors["curves"].items() if curve is not None}
    for name, curve in list(known.items())[:_MOST_CURVES]:
        axes.plot(curve["recall"], curve["precision"], label=name)
    if len(known) > _MOST_CURVES:
        mean = np.mean([curve["precision"] for curve in known.values()], axis=0)
        axes.plot(np.linspace(0, 1, len(mean)), mean, "k", linewidth=2, label=f"mean of {len(known)} classes")
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02), title="Precision over recall, IoU ≥ 0.5")
    axes.legend(fontsize=7)


def _confusion(axes: Any, errors: dict[str, Any]) -> None:
    counts, names = np.array(errors["confusion"]["counts"]), errors["confusion"]["names"]
    axes.imshow(counts / np.maximum(1, counts.sum(axis=1, keepdims=True)), cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    if len(names) <= 15:
        for row, column in np.argwhere(counts > 0).tolist():
            dark = counts[row, column] > 0.5 * counts[row].sum()
            text = {"ha": "center", "va": "center", "fontsize": 7, "color": "white" if dark else "black"}
            axes.text(column, row, counts[row, column], **text)
    score = errors["threshold"]["score"]
    axes.set(xlabel="detected class", ylabel="true class", title=f"Detections with a score of at least {score:.2f}")


def _errors(axes: Any, errors: dict[str, Any]) -> None:
    by_class = errors["errors"]["by_class"]
    names = sorted(by_class, key=lambda name: sum(by_class[name].values()))[-20:]
    left = np.zeros(len(names))
    for kind in ("right", *KINDS, "missed"):
        counts = np.array([by_class[name][kind] for name in names])
        axes.barh(names, counts, left=left, label=kind, color=_COLOURS[kind])
        left += counts
    axes.set(xlabel="detections and missed objects", title="Right and wrong, by kind of error")
    axes.tick_params(axis="y", labelsize=7)
    axes.legend(fontsize=7)
