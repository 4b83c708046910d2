"""What an ablation's file says: which runs there will be, and mistakes in it."""

from pathlib import Path

import pytest

from ablation_file import FILE, written
from conftest import csml
from csml.ablations.ablate import ablate
from csml.ablations.plans import SHIPPED, read_ablation
from csml.ablations.runs import labels_alone, planned, run_config
from csml.errors import CsmlError


@pytest.mark.parametrize(
    ("name", "scale"),
    [(name, scale) for name in SHIPPED for scale in ("demo", "cifar10-cpu", "cifar10", "paper")]
    + [("modules", "photos")]
    + [(name, scale) for name in ("modules", "neighbors") for scale in ("drawings", "cifar10-long")],
)
def test_every_shipped_ablation_is_valid_at_every_scale(name: str, scale: str, tmp_path: Path) -> None:
    ablation = read_ablation(name, scale)
    folder = str(tmp_path) if scale == "photos" else None  # of one's own
    configs = [run_config(variation, 0, folder, tmp_path) for variation in ablation.variations]
    assert len({config.out for config in configs}) == len(configs) >= 2
    data = {"demo": "synthetic", "drawings": "synthetic", "photos": tmp_path.name, "paper": "imagenet"}.get(
        scale, "cifar10"
    )
    assert {Path(config.data).name for config in configs} == {data}


def test_the_modules_are_the_paper_s_rows(tmp_path: Path) -> None:
    rows = {v.name: run_config(v, 0, None, tmp_path) for v in read_ablation("modules", "paper").variations}
    moco, cross, mixed, small, full, longer = rows.values()
    assert (moco.views.cross_sample, moco.views.mix, moco.model.stages) == (False, "none", (4,))
    assert {config.views.small_crops for config in (moco, longer, cross, mixed)} == {0}
    assert (cross.views.cross_sample, cross.views.mix) == (True, "none")
    assert (mixed.views.mix, mixed.views.small_crops) == ("cutmix", 0)
    assert (small.views.mix, small.views.small_crops) == ("cutmix", 4)
    assert {config.model.stages for config in (cross, mixed, small)} == {(4,)}
    assert (full.views, full.model.stages) == (small.views, (2, 3, 4))
    assert {config.epochs for config in (moco, cross, mixed, small, full)} == {200}
    assert (longer.epochs, longer.views.cross_sample) == (400, False)


def test_multiples_of_the_base_are_worked_out(tmp_path: Path) -> None:
    rows = {v.name: run_config(v, 0, None, tmp_path) for v in read_ablation("epochs", "paper").variations}
    assert rows["MoCo v2, double epochs"].epochs == 400
    assert rows["MoCo v2, double batch"].batch_size == 2048
    half = rows["q_a + q_p, half the epochs"]
    assert (half.epochs, half.neighbors.warmup_epochs) == (100, 5)


def test_a_grid_is_every_combination(tmp_path: Path) -> None:
    ablation = read_ablation("neighbors", "demo")
    configs = [run_config(variation, 0, None, tmp_path) for variation in ablation.variations]
    assert [(c.views.mix, c.neighbors.k) for c in configs] == [
        (mix, k) for mix in ("cutmix", "none") for k in (0, 1, 5, 10, 100)
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: {preset: demo}", "nothing to vary"),
        ("variations: [a, b]", "KEY: VALUE"),
        ("variants: {a: {}}", "variants"),
        ("variations: {a: {}}\nseeds: 3", "seeds"),
        ("variations: {a: {}}\nseeds: [-1]", "seeds"),
        ("base: {preset: demo}\nvariations: {a: {twin: simclr}}", "moco-v2"),
        ("variations: {a: {twin: moco-v2}}", "base"),
        ("base: {preset: demo}\ngrid: {neighbors.k: 5}", "list"),
        ("base: {preset: demo}\nvariations: {a: {epochs: many}}", "a: epochs: expected a whole number"),
        ("base: {preset: demo}\nvariations: {a: {views.mixed: none}}", "did you mean views.mix"),
        ("base: {preset: demo}\nvariations: {a: {times.epochs: 0}}", "times.epochs"),
        ("base: {preset: demo}\nvariations: {a: {times.data: 2}}", "times.data"),
        ("base: {preset: demo}\nvariations: {a: {}, A: {}}", "folder"),
        ("base: demo\nvariations: {a: {}}", "base"),
        ("base: {preset: demo}\nvariations: {a: demo}", "a: expected"),
        ("base: {preset: demo}\nvariations: {a: {}}\nknn: 5", "knn: expected"),
        ("base: {preset: demo}\nvariations: {a: {}}\nknn: {neighbors: 5}", "neighbors"),
        ("base: {preset: demo}\nvariations: {a: {}}\nlinear: {stages: [5]}", "stages"),
        ("base: {preset: demo}\nvariations: {a: {times: 2}}", "times"),
        ("base: {preset: demo}\nvariations: {a: {seed: 2}}", "seeds"),
        ("base: {preset: demo}\nvariations: {a: {}}\nplot: neighbours", "plot"),
        ("scales: [demo]\nvariations: {a: {}}", "scales"),
        ("{", "YAML"),
        ("just text", "base and variations"),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CsmlError) as caught:
        ablate(written(tmp_path, text), out=tmp_path / "out")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_and_scales_that_do_not_exist_are_told_with_those_that_do(tmp_path: Path) -> None:
    for file, scale, message in (
        ("modulse", None, "modules"),
        ("modules", None, "--scale"),
        ("modules", "huge", "cifar10"),
        (written(tmp_path), "demo", "no scales"),
    ):
        with pytest.raises(CsmlError, match=message):
            read_ablation(file, scale)


def test_shared_runs_are_named_by_what_is_learnt_not_by_the_machine(tmp_path: Path) -> None:
    few = "few_labels: {fractions: [0.1], scratch: {epochs: 1}}\n"

    def places(*change: str) -> list[Path]:
        ablation = read_ablation(written(tmp_path, FILE.replace(*change) + few), None)
        runs = planned(ablation, None, tmp_path, tmp_path)
        assert ablation.few_labels is not None
        return [run.run.root for run in (*runs, *labels_alone(runs, ablation.few_labels, tmp_path, tmp_path))]

    assert len(set(places("", ""))) == 6
    assert places("hardware.threads: 1", "hardware.precision: 32-true") == places("", "")
    assert not set(places("synthetic_train: 200", "synthetic_train: 201")) & set(places("", ""))


def test_a_dry_run_only_tells(tmp_path: Path) -> None:
    done = csml("ablate", written(tmp_path), "--out", str(tmp_path / "out"), "--dry_run", "true")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("to do") == 4
    assert not (tmp_path / "out").exists()
