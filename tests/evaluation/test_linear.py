"""Linear evaluation: learns, and moves nothing but its classifier."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import csml
from csml.config.protocols import LinearConfig
from csml.config.schema import HardwareConfig, ImagesConfig
from csml.data import ArrayImages
from csml.errors import CsmlError
from csml.evaluation.linear import LinearProbe
from csml.models import build_backbone
from csml.training.checkpoint import save_checkpoint
from csml.training.device import build_fabric


def easy(count: int) -> ArrayImages:
    """Class 0 is dark, class 1 is light."""
    rng = np.random.default_rng(count)
    labels = np.arange(count) % 2
    pixels = rng.integers(0, 100, (count, 32, 32, 3)) + 120 * labels[:, None, None, None]
    return ArrayImages(pixels.astype(np.uint8), labels.astype(np.int64), ("dark", "light"), "easy")


def probe(tmp_path: Path, augment: bool, epochs: int = 5, stages: tuple[int, ...] = (2, 4)) -> LinearProbe:
    config = LinearConfig(stages=stages, augment=augment, epochs=epochs, batch_size=16, lr=1.0, milestones=(3,))
    config.images = ImagesConfig(size=32, eval_crop=1.0)
    torch.manual_seed(0)
    train, val = easy(64), easy(30)
    fabric = build_fabric(HardwareConfig(), train, workers=0)
    return LinearProbe(build_backbone("tiny"), train, val, config, fabric, tmp_path / "checkpoints")


@pytest.mark.parametrize("augment", [True, False])
def test_it_learns_and_the_frozen_weights_do_not_move(tmp_path: Path, augment: bool) -> None:
    trained = probe(tmp_path, augment)
    before = copy.deepcopy(trained.backbone.state_dict())
    heads = copy.deepcopy(trained.heads.state_dict())
    result = trained.fit()
    after = trained.backbone.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)  # BatchNorm's statistics among them
    assert not torch.equal(heads["4.weight"], trained.heads.state_dict()["4.weight"])
    assert set(result["stages"]) == {"2", "4"}
    assert result["stages"]["4"]["top1"] > 0.9
    assert result["stages"]["4"]["top5"] == 1.0
    assert set(result["stages"]["4"]["per_class"]) == {"dark", "light"}


def test_the_learning_rate_falls_at_the_milestones(tmp_path: Path) -> None:
    trained = probe(tmp_path, augment=False, epochs=5)
    trained.fit()
    assert trained.optimizer.param_groups[0]["lr"] == pytest.approx(0.1)


def test_it_resumes_exactly(tmp_path: Path) -> None:
    whole = probe(tmp_path / "whole", augment=True, epochs=4)
    whole.fit()
    first = probe(tmp_path / "parts", augment=True, epochs=4)
    for _ in range(2):
        first._train_epoch()
        first.epoch += 1
    save_checkpoint(first.checkpoints, first.state_dict(), first.epoch, 0, keep=1)
    second = probe(tmp_path / "parts", augment=True, epochs=4)
    second.resume()
    assert second.epoch == 2
    second.fit()
    for name, value in whole.heads.state_dict().items():
        assert torch.equal(value, second.heads.state_dict()[name])
    assert not second.checkpoints.exists()  # a finished evaluation leaves nothing to continue


def test_it_refuses_to_resume_what_belongs_to_other_settings_or_is_not_there(tmp_path: Path) -> None:
    first = probe(tmp_path, augment=False)
    with pytest.raises(CsmlError, match="nothing to continue"):
        first.resume()
    save_checkpoint(first.checkpoints, first.state_dict(), 1, 0, keep=1)
    with pytest.raises(CsmlError, match="other weights or settings"):
        probe(tmp_path, augment=True).resume()


def test_the_command_writes_its_result_into_the_run(small_run: Path) -> None:
    done = csml("linear", str(small_run), "--augment", "false", "--epochs", "20", "--stages", "[3, 4]", "--lr", "1")
    assert done.returncode == 0, done.stderr
    result = json.loads((small_run / "linear.json").read_text())
    assert set(result["stages"]) == {"3", "4"}
    assert f"stage 4  top-1 {result['stages']['4']['top1']:.1%}" in done.stdout
