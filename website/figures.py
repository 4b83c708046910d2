"""The figures of docs/method.md, drawn from real views: `python website/figures.py` writes them into docs/images."""

import io
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch
from PIL import Image

import csml
from csml.api.pretraining import pretrain_config
from csml.data.images import Images
from csml.data.open import open_data
from csml.reporting.views_sheet import draw_views
from csml.search import top_k

IMAGES = Path(__file__).parent.parent / "docs" / "images"
ANCHOR = 4
BLUE, RED, GREY = "#3b6ea5", "#c8553d", "#777777"


def main() -> None:
    config = pretrain_config("synthetic", preset="demo", **{"images.size": 96, "images.synthetic_train": 400})
    images = open_data(config.data, config.images).train
    omega = neighbors_of(images)
    (views,) = draw_views(config, images, omega, np.array([ANCHOR]))
    save(draw_pulls(dict(views), images, omega), IMAGES / "method-views.png")
    save(draw_levels(), IMAGES / "method-levels.png")


def save(figure: plt.Figure, path: Path) -> None:
    """With 128 colours: a third of the bytes."""
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=110)
    Image.open(drawn).convert("RGB").quantize(128).save(path, optimize=True)


def neighbors_of(images: Images) -> np.ndarray:
    """The three nearest neighbours `(N, 3)` of every image, by the features of ImageNet weights."""
    pixels = np.stack([np.asarray(images.read(id)) for id in range(len(images))])
    features, _ = csml.embed("lite0", pixels, images={"size": 96})
    found, _ = top_k(torch.from_numpy(features), 4)
    return found[:, 1:].numpy()


def draw_pulls(views: dict[str, Image.Image], images: Images, omega: np.ndarray) -> plt.Figure:
    """Queries on the left, keys on the right, and how strongly each query is pulled to each key."""
    figure, axes = plt.subplots(figsize=(9, 4.2))
    axes.set(xlim=(0, 9), ylim=(0, 4.2))
    axes.axis("off")
    mixed = next(name for name in views if name.startswith("mixed"))
    lam = float(mixed.partition("= ")[2])
    picture(axes, images.read(ANCHOR), 0.7, 3.0, "anchor $x_a$")
    picture(axes, images.read(int(omega[ANCHOR, 0])), 0.7, 1.1, "one of its neighbours $x_p$")
    queries = {
        "query a": ("$q_a$", 3.55),
        mixed: (rf"$\hat q$: mixed, $\lambda$ = {lam:.2f}", 2.1),
        "query p": ("$q_p$", 0.65),
    }
    keys = {"key a": ("$k_a$", 3.0), "key p": ("$k_p$", 1.1)}
    for name, (title, y) in queries.items():
        picture(axes, views[name], 3.2, y, title, 0.9)
    for name, (title, y) in keys.items():
        picture(axes, views[name], 6.2, y, title, 0.9)
    weights = {"query a": ("½", "½"), mixed: ("λ", "1 − λ"), "query p": ("½", "½")}
    for name, (_, y) in queries.items():
        for (_, end), weight, colour in zip(keys.values(), weights[name], (BLUE, RED), strict=True):
            arrow = {"arrowstyle": "-|>", "color": colour, "lw": 1.3}
            axes.annotate("", xy=(5.7, end), xytext=(3.7, y), arrowprops=arrow)
            axes.text(4.35, y + (end - y) * 0.32 + 0.06, weight, color=colour, fontsize=10, ha="center")
    for place in range(8):
        picture(axes, images.read(40 + place), 7.6 + 0.42 * (place % 3), 2.9 - 0.5 * (place // 3), "", 0.36)
    axes.text(
        8.05,
        1.3,
        "queue of past keys:\nall queries are\npushed away from it",
        fontsize=8,
        ha="center",
        va="top",
        color=GREY,
    )
    figure.tight_layout(pad=0.2)
    return figure


def picture(axes: Axes, image: Image.Image, x: float, y: float, title: str, side: float = 1.1) -> None:
    """An image with its centre at a point, and its name below."""
    axes.imshow(np.asarray(image), extent=(x - side / 2, x + side / 2, y - side / 2, y + side / 2), zorder=3)
    axes.text(x, y - side / 2 - 0.06, title, fontsize=8, ha="center", va="top")


def draw_levels() -> plt.Figure:
    """The stages of a network, and the head and the loss of those that have one."""
    figure, axes = plt.subplots(figsize=(9, 2.6))
    axes.set(xlim=(0, 9), ylim=(0, 2.6))
    axes.axis("off")
    box(axes, 0.6, 0.6, "view", "white")
    for stage in (1, 2, 3, 4):
        x = 0.6 + 1.9 * stage
        box(axes, x, 0.6, f"stage {stage}", "#dfe8f2")
        axes.annotate("", xy=(x - 0.62, 0.6), xytext=(x - 1.28, 0.6), arrowprops={"arrowstyle": "-|>", "color": GREY})
        if stage > 1:
            box(axes, x, 1.5, "projection" if stage == 4 else "companion head", "#f4e2dc")
            axes.annotate("", xy=(x, 1.25), xytext=(x, 0.87), arrowprops={"arrowstyle": "-|>", "color": GREY})
            axes.text(x, 2.05, "$L$" if stage == 4 else f"$L^{stage}$", ha="center", color=RED, fontsize=12)
    axes.text(6.3, 2.42, "added (Eq. 7)", ha="center", fontsize=8, color=GREY)
    figure.tight_layout(pad=0.2)
    return figure


def box(axes: Axes, x: float, y: float, text: str, colour: str) -> None:
    style = "round,pad=0.02,rounding_size=0.08"
    axes.add_patch(FancyBboxPatch((x - 0.6, y - 0.25), 1.2, 0.5, boxstyle=style, facecolor=colour, edgecolor=GREY))
    axes.text(x, y, text, ha="center", va="center", fontsize=8)


if __name__ == "__main__":
    main()
