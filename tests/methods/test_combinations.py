"""Every framework with every kind of views: the loss is the formula, a short run learns, and a cut-off run goes on."""

import copy
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from conftest import assert_same, configured, untimed
from csml.config import PretrainConfig
from csml.data import open_data
from csml.data.loading import fabric_for, view_batches
from csml.data.sampling import generator_for, plan_batch
from csml.runs.directory import RunDirectory
from csml.runs.metrics import read_metrics
from csml.training.build import build_method
from csml.training.loop import TrainingLoop
from csml.training.pretraining import Pretraining
from csml.views import Views, crop_specs, make_views

FRAMEWORKS = {
    "contrast": ["--preset", "demo", "--contrast.queue_length", "64", "--contrast.momentum", "0.9"],
    "byol": ["--preset", "demo-csml-byol", "--byol.momentum", "0.9"],
    "simsiam": ["--preset", "demo-csml-simsiam"],
}
VIEWS = {
    "single": ["--views.cross_sample", "false", "--views.mix", "none", "--model.stages", "[4]"],
    "cross-sample": ["--views.mix", "none", "--model.stages", "[4]"],
    "cutmix": ["--model.stages", "[4]"],
    "cutmix per sample": ["--views.mix_per_sample", "true", "--model.stages", "[4]"],
    "mixup": ["--views.mix", "mixup", "--model.stages", "[4]"],
    "multi-crop": ["--views.small_crops", "2", "--views.small_size", "8", "--model.stages", "[4]"],
    "single, multi-crop": [
        "--views.cross_sample", "false", "--views.mix", "none", "--views.small_crops", "2", "--model.stages", "[4]",
    ],
    "two positives": ["--views.positives", "2", "--model.stages", "[4]"],
    "no neighbours": ["--neighbors.k", "0", "--model.stages", "[3, 4]"],
    "multi-level": [],
    "everything": ["--views.positives", "2", "--views.small_crops", "1", "--views.mix_per_sample", "true"],
    "one-directional": ["--views.symmetric", "false", "--views.mix", "none", "--model.stages", "[4]"],
    "lars": ["--optimizer.kind", "lars", "--optimizer.trust", "0.2", "--model.stages", "[4]"],
    "both directions": ["--views.symmetric", "true", "--model.stages", "[4]"],
}  # fmt: skip
COMBINATIONS = [(framework, views) for framework in FRAMEWORKS for views in VIEWS]
SMALL = [
    "--images.synthetic_train", "64", "--images.synthetic_val", "40", "--batch_size", "16",
    "--neighbors.warmup_epochs", "1", "--neighbors.refresh_every", "1", "--monitor.knn_every", "0",
    "--monitor.tensorboard", "false", "--optimizer.warmup_epochs", "0", "--optimizer.lr_per_256", "1.0",
    "--model.backbone", "nano", "--images.size", "16", "--hardware.precision", "32-true",
]  # fmt: skip
B = 8


def config_of(framework: str, views: str, *more: str) -> PretrainConfig:
    return configured("pretrain", *FRAMEWORKS[framework], *SMALL, *VIEWS[views], *more)


def views_of(config: PretrainConfig) -> Views:
    data = open_data(config.data, config.images)
    omega = torch.stack([(torch.arange(64) + i) % 64 for i in range(1, 11)], dim=1).numpy()
    specs = crop_specs(config)
    anchors = torch.arange(0, 4 * B, 4).numpy()
    plan = plan_batch(
        anchors, omega if config.neighbors.k else None, len(specs), generator_for(1), config.views.positives
    )
    batch = next(view_batches(data.train, [plan], specs, workers=0))
    return make_views(
        batch.crops, batch.anchors, batch.neighbors, torch.from_numpy(omega[anchors]), config.views,
        config.augmentation, generator_for(2),
    )  # fmt: skip


def formula(config: PretrainConfig, views: Views, method: Any) -> Tensor:
    """The equations of docs/method.md written out with loops, from the images and λ alone."""
    tau = config.contrast.temperature

    def ell(q: Tensor, k: Tensor, s: int) -> Tensor:  # (D,), (D,)
        if config.framework != "contrast":
            return 2 - 2 * F.cosine_similarity(q, k, dim=0)
        negatives = sum(torch.exp(q @ n / tau) for n in method.queue.keys(s))
        return -torch.log(torch.exp(q @ k / tau) / (torch.exp(q @ k / tau) + negatives))

    def query(images: Tensor) -> dict[int, Tensor]:
        z = method.query_encoder(images)
        return z if config.framework == "contrast" else {s: method.predictors[str(s)](z[s]) for s in z}

    def key(images: Tensor) -> dict[int, Tensor]:
        if config.framework != "simsiam":
            return method.key_encoder(images)
        return {s: z.detach() for s, z in method.query_encoder(images).items()}

    keys = {name: key(images) for name, images in views.keys.items()}
    sides = [name for name in keys if not name.endswith("_swapped")]
    groups: list[Tensor] = []
    for end in ("", "_swapped") if config.views.symmetric else ("",):
        for side in sides:
            q = query(views.queries[side + end])
            groups.append(
                sum(ell(q[s][b], keys[k + end][s][b], s) / len(sides) / B for s in q for k in sides for b in range(B))
            )
        if config.views.mix != "none":
            q, weights = query(views.queries["mixed" + end]), views.weights["mixed" + end].double()
            lam = weights[0 if end == "" else len(sides)]  # () or (B,)
            lam = lam.expand(B)
            groups.append(
                sum(
                    (lam[b] * ell(q[s][b], keys["a" + end][s][b], s)
                     + (1 - lam[b]) * ell(q[s][b], keys["p" + end][s][b], s)) / B
                    for s in q for b in range(B)
                )
            )  # fmt: skip
    crops = config.views.small_crops
    if crops:
        q, rows = query(views.queries["small"]), len(sides) * crops
        for place in range(len(sides)):
            term = torch.zeros((), dtype=torch.float64)
            for s in q:
                for b in range(B):
                    for row in q[s][b * rows + place * crops : b * rows + (place + 1) * crops]:
                        term = term + sum(ell(row, k[s][b], s) for k in keys.values()) / len(keys) / crops / B
            groups.append(term)
    return torch.stack(groups).mean()


@pytest.mark.parametrize(("framework", "views"), COMBINATIONS)
def test_the_loss_is_the_formula_written_out(framework: str, views: str) -> None:
    splits = ["--contrast.bn_splits", "1"] if framework == "contrast" else []
    config = config_of(framework, views, *splits)
    images = views_of(config)
    images = images._replace(
        queries={name: q.double() for name, q in images.queries.items()},
        keys={name: k.double() for name, k in images.keys.items()},
    )
    method = build_method(config, 64).double()
    naive = copy.deepcopy(method)
    result = method(images, generator_for(3))
    expected = formula(config, images, naive)
    torch.testing.assert_close(result.loss, expected, rtol=1e-6, atol=1e-9)
    result.loss.backward()
    expected.backward()
    for (name, ours), theirs in zip(method.named_parameters(), naive.parameters(), strict=True):
        if ours.requires_grad:
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-8, msg=name)


def training(config: PretrainConfig, out: Path) -> TrainingLoop:
    out.mkdir(parents=True, exist_ok=True)
    data, run = open_data(config.data, config.images), RunDirectory(out)
    fabric = fabric_for(data.train, config.images.workers, config.hardware)
    return TrainingLoop(Pretraining(config, data, run, fabric), config, run, fabric)


@pytest.mark.parametrize(("framework", "views"), COMBINATIONS)
def test_a_run_learns_and_goes_on_bit_by_bit_after_it_was_cut_off(
    tmp_path: Path, framework: str, views: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(framework, views, "--epochs", "2")
    often = replace(config, checkpoint=replace(config.checkpoint, every_steps=2, keep=9))
    whole = training(often, tmp_path / "whole")
    step = whole.train_step

    def copied(batch: Any) -> None:
        if (whole.epoch, whole.step) == (1, 3):  # after the first search, one step after a checkpoint
            shutil.copytree(tmp_path / "whole", tmp_path / "cut")  # all that a process killed now would leave
        step(batch)

    monkeypatch.setattr(whole, "train_step", copied)
    whole.fit()
    # The queue fills while a run begins, so that a loss is compared with that of a network that does not learn.
    frozen = training(config, tmp_path / "frozen")
    monkeypatch.setattr(frozen.fabric, "backward", lambda loss: None)  # without gradients the weights stay
    frozen.fit()
    last, still = (read_metrics(tmp_path / name / "metrics.jsonl")[-1] for name in ("whole", "frozen"))
    assert last["loss"] < still["loss"] - 0.1  # worst of 3 seeds of each: 0.198
    assert last["spread/stage4"] > 0.1  # worst of 3 seeds of each: 0.517; a collapse would be below 0.05

    again = training(often, tmp_path / "cut")
    again.resume()
    assert (again.epoch, again.step) == (1, 2)
    again.fit()
    for name in ("method", "optimizer", "omega"):
        assert_same(whole.state_dict()[name], again.state_dict()[name], name)
    assert untimed(tmp_path / "whole/metrics.jsonl") == untimed(tmp_path / "cut/metrics.jsonl")


def test_views_and_frameworks_do_not_know_each_other() -> None:
    """What lets a new framework be one new file: nothing in views imports methods or losses, and the other way round
    methods use only what a batch of views is."""
    source = Path(__file__).parents[2] / "src" / "csml"
    for file in (source / "views").glob("*.py"):
        text = file.read_text()
        assert not any(f"csml.{name}" in text for name in ("methods", "losses", "training", "models"))
    for file in (source / "methods").glob("*.py"):
        lines = [line for line in file.read_text().splitlines() if "import" in line and "csml.views" in line]
        assert all(line == "from csml.views.recipe import Views" for line in lines), file
        assert "ViewsConfig" not in file.read_text()
