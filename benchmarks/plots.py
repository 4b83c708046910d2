"""The curve of the search: minutes against the number of images."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt


def plot_sizes(lines: list[dict[str, float]], path: Path) -> None:
    """`rows`, `minutes` and `recall` of each size, on double logarithmic axes."""
    rows, minutes = [line["rows"] for line in lines], [line["minutes"] for line in lines]
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    axes.loglog(rows, minutes, "o-", color="tab:blue", label="measured")
    axes.loglog(rows, [minutes[-1] * (n / rows[-1]) ** 2 for n in rows], ":", color="gray", label="∝ N²")
    axes.axhline(30, color="tab:red", linewidth=0.8, label="30 minutes")
    for line in lines:
        axes.annotate(
            f"{line['minutes']:.1f} min\nrecall {line['recall']:.3f}",
            (line["rows"], line["minutes"]), textcoords="offset points", xytext=(8, -18), fontsize=8,
        )  # fmt: skip
    axes.set(xlabel="images N (2048 dimensions, k = 10)", ylabel="minutes on this machine")
    axes.set_xlim(rows[0] * 0.8, rows[-1] * 1.8)
    axes.legend(frameon=False)
    axes.grid(True, which="both", alpha=0.2)
    figure.savefig(path, dpi=120)
    plt.close(figure)
