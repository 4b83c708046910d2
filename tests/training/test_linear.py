"""Linear evaluation: learns, and moves nothing but its classifier."""

import copy
import errno
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from conftest import csml, untimed
from csml.config import CheckpointConfig, HardwareConfig, ImagesConfig, LinearConfig
from csml.data import ArrayImages
from csml.data.decode import DecodeError
from csml.data.images import BoxMaker
from csml.data.loading import fabric_for
from csml.errors import CsmlError
from csml.models import build_backbone
from csml.progress import Progress
from csml.runs.checkpoint import remove_checkpoints
from csml.runs.directory import probe_directory
from csml.runs.metrics import read_metrics
from csml.training.linear import LinearProbe, fit_probe
from csml.training.loop import TrainingLoop


def easy(count: int) -> ArrayImages:
    """Class 0 is dark, class 1 is light."""
    rng = np.random.default_rng(count)
    labels = np.arange(count) % 2
    pixels = rng.integers(0, 100, (count, 32, 32, 3)) + 120 * labels[:, None, None, None]
    return ArrayImages(pixels.astype(np.uint8), labels.astype(np.int64), ("dark", "light"), "easy")


def probe(tmp_path: Path, augment: bool, epochs: int = 5, train: ArrayImages | None = None) -> LinearProbe:
    config = LinearConfig(
        stages=(2, 4), augment=augment, epochs=epochs, batch_size=16, lr=0.3, milestones=(3,),
        images=ImagesConfig(size=32, eval_crop=1.0), checkpoint=CheckpointConfig(every_steps=3),
    )  # fmt: skip
    torch.manual_seed(0)
    train, val = train or easy(64), easy(30)
    fabric = fabric_for(train, 0, HardwareConfig())
    tmp_path.mkdir(exist_ok=True)
    return LinearProbe(config, build_backbone("tiny"), train, val, probe_directory(tmp_path / "linear.json"), fabric)


def loop_of(trained: LinearProbe) -> TrainingLoop:
    return TrainingLoop(trained, trained.config, trained.run, trained.fabric)


@pytest.mark.parametrize("augment", [True, False])
def test_it_learns_and_the_frozen_weights_do_not_move(tmp_path: Path, augment: bool) -> None:
    trained = probe(tmp_path, augment)
    before = copy.deepcopy(trained.backbone.state_dict())
    heads = copy.deepcopy(trained.network.state_dict())
    result = fit_probe(trained)
    after = trained.backbone.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)  # BatchNorm's statistics among them
    assert not torch.equal(heads["4.weight"], trained.network.state_dict()["4.weight"])
    assert set(result["stages"]) == {"2", "4"}
    assert result["stages"]["4"]["top1"] > 0.9  # augmented, all of 10 seeds: 1.0
    assert result["stages"]["4"]["top5"] == 1.0
    assert set(result["stages"]["4"]["per_class"]) == {"dark", "light"}


class Torn(ArrayImages):
    """The fourth image cannot be read."""

    def read(self, id: int) -> Image.Image:
        if id == 3:
            raise DecodeError("torn")
        return super().read(id)

    def cut(self, ids: np.ndarray, cuts: Sequence[tuple[BoxMaker, int]]) -> tuple[list[torch.Tensor], np.ndarray]:
        return super().cut(ids, cuts)[0], ids != 3


@pytest.mark.parametrize("augment", [True, False])
def test_images_that_cannot_be_read_are_not_those_it_was_trained_on(tmp_path: Path, augment: bool) -> None:
    whole = easy(64)
    trained = probe(tmp_path, augment, train=Torn(whole.pixels, whole.labels, whole.classes, "torn"))
    if augment:
        trained.failures.add([3])  # as the training does when it meets it
    result = trained.result()
    assert (result["trained_on"], result["tested"], result["failed"]) == (63, 30, 1)


def test_the_learning_rate_falls_at_the_milestones(tmp_path: Path) -> None:
    trained = probe(tmp_path, augment=False, epochs=5)
    fit_probe(trained)
    assert trained.optimizer.param_groups[0]["lr"] == pytest.approx(0.03)
    assert [r["lr"] for r in read_metrics(trained.run.metrics)] == pytest.approx([0.3, 0.3, 0.3, 0.03, 0.03])


class Killed(Exception):
    pass


@pytest.mark.parametrize("augment", [True, False])
def test_it_resumes_exactly(tmp_path: Path, augment: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = probe(tmp_path / "whole", augment, epochs=4)
    result = fit_probe(whole)
    cut = loop_of(probe(tmp_path / "cut", augment, epochs=4))
    step = cut.train_step

    def fails(batch: Any) -> None:
        if (cut.epoch, cut.step) == (2, 3):
            raise Killed
        step(batch)

    monkeypatch.setattr(cut, "train_step", fails)
    with pytest.raises(Killed):
        cut.fit()
    again = probe(tmp_path / "cut", augment, epochs=4)
    loop = loop_of(again)
    loop.resume()
    assert (loop.epoch, loop.step) == (2, 3)
    assert fit_probe(again, resume=None) == result
    for name, value in whole.network.state_dict().items():
        assert torch.equal(value, again.network.state_dict()[name])
    assert untimed(whole.run.metrics) == untimed(again.run.metrics)


def test_it_refuses_to_resume_what_belongs_to_other_settings(tmp_path: Path) -> None:
    first = probe(tmp_path, augment=False)
    loop_of(first).save()
    with pytest.raises(CsmlError, match="other weights or settings"):
        fit_probe(probe(tmp_path, augment=True), resume=True)
    assert len(list(first.run.checkpoints.glob("*.pt"))) == 1
    fit_probe(probe(tmp_path, augment=True, epochs=1), resume=None)  # starts anew


def test_without_a_checkpoint_it_starts_from_its_beginning_only_if_nothing_was_completed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    result = fit_probe(probe(tmp_path / "whole", augment=False))
    first = probe(tmp_path / "first", augment=False)
    with caplog.at_level("INFO", logger="csml"):
        assert fit_probe(first, resume=True) == result
    assert "no checkpoint yet: the run starts from its beginning" in caplog.text
    assert untimed(first.run.metrics) == untimed(probe_directory(tmp_path / "whole" / "linear.json").metrics)
    remove_checkpoints(first.run.checkpoints)
    with pytest.raises(CsmlError, match="no checkpoint to resume from"):
        fit_probe(first, resume=True)
    assert len(untimed(first.run.metrics)) == first.config.epochs


def test_the_time_left_follows_from_all_the_time_since_this_process_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = loop_of(probe(tmp_path, augment=False, epochs=4))
    cut.epoch = 2  # as after resuming
    bars: list[Progress] = []
    monkeypatch.setattr("csml.training.loop.Progress", lambda *a, **k: bars.append(Progress(*a, **k)) or bars[-1])
    cut.fit()
    assert len(bars) == 2 and bars[0].began == bars[1].began
    assert [bar.done_then for bar in bars] == [2 * cut.task.timetable.per_epoch] * 2


def test_the_command_writes_its_result_into_the_run(small_run: Path) -> None:
    done = csml("linear", str(small_run), "--augment", "false", "--epochs", "20", "--stages", "[3, 4]", "--lr", "1")
    assert done.returncode == 0, done.stderr
    result = json.loads((small_run / "linear.json").read_text())
    assert set(result["stages"]) == {"3", "4"}
    assert not (small_run / "linear" / "checkpoints").exists()  # a finished evaluation leaves nothing to continue
    assert f"stage 4  top-1 {result['stages']['4']['top1']:.1%}" in done.stdout


def test_checkpoints_stay_until_the_result_is_written(
    small_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill or a full disk between the last epoch and linear.json once cost the whole probe."""
    output = tmp_path / "linear.json"
    words = ["linear", str(small_run), "--augment", "false", "--epochs", "3", "--output", str(output)]
    with monkeypatch.context() as patched:
        patched.setattr("csml.api.evaluating.write_result", full_disk)
        assert "the disk is full" in csml(*words).stderr
    assert not output.exists()
    done = csml(*words, "--resume")
    assert done.returncode == 0 and "resumed from" in done.stderr, done.stderr
    assert output.exists() and not (tmp_path / "linear" / "checkpoints").exists()


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
