"""Tables and plots of ablations."""

import numpy as np
import pytest

from csml.ablations.outcomes import Outcome, markdown, summarize
from csml.ablations.plans import Ablation, Variation
from csml.ablations.plot import draw


def outcomes(variations: list[Variation], seeds: int = 3) -> list[Outcome]:
    rng = np.random.default_rng(0)
    return [
        Outcome(
            variation,
            seed,
            {
                "20-NN": float(rng.random()), "linear, stage 3": float(rng.random()),
                "linear, stage 4": float(rng.random()), "minutes": float(rng.random()),
                "purity of Ω": float(rng.random()), "fine-tuned, 1 %": float(rng.random()),
            },
            [{"epoch": 1, "purity": 0.3}, {"epoch": 2, "purity": float(rng.random()), "turnover": 0.2}],
        )
        for seed in range(seeds)
        for variation in variations
    ]  # fmt: skip


def variation(name: str, **facts: object) -> Variation:
    return Variation(name, None, {}, {}, {key.replace("__", "."): value for key, value in facts.items()})


def test_means_and_deviations_are_numpy_s() -> None:
    rows = outcomes([variation("one"), variation("two")])
    table = summarize(rows)
    for name in ("one", "two"):
        values = [row.measured["20-NN"] for row in rows if row.variation.name == name]
        mean, deviation, seeds = table[name]["20-NN"]
        assert mean == pytest.approx(np.mean(values))
        assert deviation == pytest.approx(np.std(values, ddof=1))
        assert seeds == 3


@pytest.mark.parametrize("plot", ["dots", "cost", "stages", "omega", "labels"])
def test_a_plot_of_nothing_yet_is_empty(plot: str) -> None:
    draw(Ablation("a", "Every run has failed so far", (0,), (variation("one"),), {}, {}, plot), []).canvas.draw()


def test_one_seed_has_no_spread() -> None:
    text = markdown(outcomes([variation("one")], seeds=1))
    assert "±" not in text
    assert text.splitlines()[0].endswith("| purity of Ω | minutes | seeds |")


@pytest.mark.parametrize("plot", ["dots", "cost", "stages", "omega", "labels", "neighbors.k"])
def test_every_kind_of_plot_shows_every_variation(plot: str) -> None:
    variations = [
        variation(f"k {k} {mix}", neighbors__k=k, views__mix=mix) for k in (1, 5) for mix in ("cutmix", "none")
    ]
    figure = draw(Ablation("a", "The title", (0,), tuple(variations), {}, {}, plot), outcomes(variations))
    figure.canvas.draw()
    shown = [text.get_text() for axes in figure.axes for text in (*axes.get_yticklabels(), *axes.get_xticklabels())]
    for axes in figure.axes:
        legend = axes.get_legend()
        shown += [text.get_text() for text in legend.get_texts()] if legend else []
    if plot == "neighbors.k":
        assert {"1", "5", "views.mix cutmix", "views.mix none"} <= set(shown)
    elif plot == "labels":
        assert {f"{v.name}, fine-tuned" for v in variations} <= set(shown)
    else:
        assert {v.name for v in variations} <= set(shown)
