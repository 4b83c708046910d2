"""Every verb on runs of timm's networks: judged by stage, tuned, reported, used in a detector."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import csml
from csml.models.backbones import FeatureNet, feature_channels, normalization

NETWORKS = ["timm:test_efficientnet", "timm:test_vit"]
SMALL: dict[str, Any] = {
    "epochs": 1, "batch_size": 16, "images.synthetic_train": 48, "images.synthetic_val": 24, "monitor.knn_every": 1,
    "contrast.queue_length": 16, "monitor.tensorboard": False, "hardware.threads": 1, "hardware.precision": "32-true",
    "neighbors.warmup_epochs": 0, "neighbors.k": 2,
}  # fmt: skip


@pytest.fixture(scope="module", params=NETWORKS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> csml.Run:
    """A finished run with companion heads."""
    out = tmp_path_factory.mktemp("timm") / "run"
    return csml.pretrain("synthetic", out, preset="demo", model={"backbone": request.param}, **SMALL)


def test_all_levels_of_a_run_have_a_loss(run: csml.Run) -> None:
    assert all(np.isfinite(run.metrics[f"loss/stage{stage}/a"][-1]) for stage in (2, 3, 4))


def test_every_stage_is_judged_and_embedded(run: csml.Run) -> None:
    judged = run.linear(stages=[2, 3, 4], augment=False, epochs=1, milestones=[1])
    assert set(judged.top1) == {2, 3, 4}
    assert run.knn(k=[5], stage=2).tested == 24
    features, paths = run.embed(stage=2)
    assert features.shape == (len(paths), feature_channels(run.backbone())[2])


def test_features_are_those_of_images_that_are_normalised_as_the_network_wants_it(run: csml.Run) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    features, _ = csml.embed(run, pixels, images={"size": 32, "eval_crop": 1.0})
    net = run.backbone()
    by = normalization(net)
    mean, std = (torch.tensor(values)[:, None, None] for values in by)
    images = (torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255 - mean) / std
    with torch.no_grad():
        expected = FeatureNet(net)(images)[4]
    torch.testing.assert_close(torch.from_numpy(features), expected, atol=1e-4, rtol=1e-4)


def test_a_run_is_tuned_predicts_and_is_reported(run: csml.Run, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    settings = {"epochs": 1, "batch_size": 12, "fraction": 0.5, "monitor.tensorboard": False}
    tuned = csml.finetune(run, preset="demo", out=tmp_path / "tuned", **settings)
    picture = np.zeros((1, 32, 32, 3), dtype=np.uint8)
    Image.fromarray(picture[0]).save(tmp_path / "black.png")
    found = tuned.predict(tmp_path / "black.png")
    assert 0 < found.probabilities[0] <= 1
    assert csml.report([run, tuned], output=tmp_path / "page.html", points=20, tests=10).stat().st_size > 10_000


@pytest.mark.parametrize("kind", ["fpn", "c4"])
def test_a_detector_is_trained_on_a_run_or_one_line_says_why_not(run: csml.Run, kind: str, tmp_path: Path) -> None:
    pytest.importorskip("pycocotools")
    settings = {
        "batch_size": 2, "scenes.short_sides": [64], "scenes.test_side": 64, "scenes.max_side": 96,
        "scenes.synthetic_train": 4, "scenes.synthetic_val": 2, "scenes.synthetic_size": 64, "detector.proposals": 20,
        "detector.rois": 8, "schedule.iterations": 1, "monitor.tensorboard": False, "hardware.threads": 1,
    }  # fmt: skip
    if kind == "c4":
        with pytest.raises(csml.CsmlError, match="c4 needs a ResNet"):
            csml.detect(run, data="synthetic", preset="small-c4", out=tmp_path / "detector", **settings)
        assert not (tmp_path / "detector").exists()
        return
    detector = csml.detect(run, data="synthetic", preset="small-fpn", out=tmp_path / "detector", **settings)
    assert (detector.path / "detector.safetensors").exists()
