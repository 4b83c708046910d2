"""What a run leaves behind, and how it fails."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import csml as package
from conftest import SMALL_RUN, configured, csml, noise_photos
from csml.config import ImagesConfig
from csml.data import open_data
from csml.data.loading import fabric_for
from csml.errors import CsmlError
from csml.methods.contrast import queue_length
from csml.runs.directory import RunDirectory
from csml.runs.metrics import EpochMeans, embedding_statistics, read_metrics
from csml.runs.opening import new_run
from csml.training.loop import TrainingLoop
from csml.training.pretraining import Pretraining
from csml.training.schedule import learning_rate


def test_the_run_directory_has_the_documented_tree(small_run: Path) -> None:
    names = {path.name for path in small_run.iterdir()}
    assert names >= {"config.yaml", "run.json", "log.txt", "metrics.jsonl", "neighbors", "checkpoints"}
    assert (small_run / "backbone.safetensors").exists()
    facts = json.loads((small_run / "run.json").read_text())
    assert facts["versions"]["torch"] == torch.__version__.split("+")[0]
    assert facts["images"] == 150
    assert yaml.safe_load((small_run / "config.yaml").read_text())["contrast"]["queue_length"] == 64
    assert "epoch 3/3" in (small_run / "log.txt").read_text()


def test_every_epoch_logs_what_people_ask_for(small_run: Path) -> None:
    records = read_metrics(small_run / "metrics.jsonl")
    assert [record["epoch"] for record in records] == [1, 2, 3]
    last = records[-1]
    assert last["chance"] == pytest.approx(math.log(65))
    for stage in (2, 3, 4):
        for query in ("a", "p", "mixed"):
            assert 0 < last[f"loss/stage{stage}/{query}"] < 10
        for name in ("accuracy", "positive", "negative", "spread", "alignment", "uniformity"):
            assert math.isfinite(last[f"{name}/stage{stage}"])
    for name in ("loss", "lr", "images_per_second", "data_wait", "knn20", "omega/purity", "omega/turnover"):
        assert math.isfinite(last[name]), name
    total = sum(last[f"loss/stage{s}/{q}"] for s in (2, 3, 4) for q in ("a", "p", "mixed")) / 3
    assert last["loss"] == pytest.approx(total)


def test_what_is_printed_is_not_taken_for_an_accuracy_on_photos(small_run: Path) -> None:
    log, record = (small_run / "log.txt").read_text(), read_metrics(small_run / "metrics.jsonl")[-1]
    assert f"  own view found {record['accuracy/stage4']:.1%}  " in log and "accuracy" not in log


def test_omega_of_every_refresh_is_kept(small_run: Path) -> None:
    files = sorted(path.name for path in (small_run / "neighbors").iterdir())
    assert files == ["epoch-0001.npz", "epoch-0002.npz"]
    with np.load(small_run / "neighbors" / files[0]) as omega:
        assert omega["indices"].shape == (150, 10)
        assert not (omega["indices"] == np.arange(150)[:, None]).any()


def test_the_three_lines_it_prints_load_the_backbone(small_run: Path) -> None:
    done = csml("pretrain", "--resume", str(small_run))  # finished: it only says how to use it
    assert f"csml.Run({str(small_run)!r}).backbone()" in done.stdout + done.stderr
    backbone = package.Run(small_run).backbone()
    assert backbone(torch.rand(2, 3, 32, 32)).shape == (2, 128)


def test_tensorboard_gets_the_same_numbers(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = [*SMALL_RUN, "--epochs", "1", "--monitor.tensorboard", "true", "--out", str(out)]
    assert csml("pretrain", *words).returncode == 0
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(out / "tensorboard")).Reload()
    (logged,) = events.Scalars("loss")
    assert logged.value == pytest.approx(read_metrics(out / "metrics.jsonl")[0]["loss"], rel=1e-5)
    assert logged.step == 1


def test_a_run_is_not_overwritten_unless_asked(small_run: Path, tmp_path: Path) -> None:
    done = csml("pretrain", *SMALL_RUN, "--out", str(small_run))
    assert done.returncode == 2
    assert "--overwrite" in done.stderr
    foreign = tmp_path / "precious"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("years of work")
    done = csml("pretrain", *SMALL_RUN, "--out", str(foreign), "--overwrite")
    assert done.returncode == 2
    assert (foreign / "thesis.txt").exists()


def in_process(out: Path, *more: str) -> TrainingLoop:
    config = configured("pretrain", *SMALL_RUN[:-2], *more)  # without --hardware.threads, which would stay set
    out.mkdir(parents=True)
    data, run = open_data(config.data, config.images), RunDirectory(out)
    fabric = fabric_for(data.train, config.images.workers, config.hardware)
    return TrainingLoop(Pretraining(config, data, run, fabric), config, run, fabric)


def test_a_non_finite_loss_stops_with_its_cause_and_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    training = in_process(tmp_path / "run", "--epochs", "2", "--monitor.knn_every", "0")
    training.save()
    with torch.no_grad():
        training.task.network.query_encoder.heads["3"].projection.mlp[0].weight.fill_(float("nan"))  # type: ignore[union-attr]
    with pytest.raises(
        CsmlError, match=r"loss/stage3/a.* non-finite after epoch 1/\d+, step 0; .*epoch-0000-step-000000"
    ):
        training.fit()
    with pytest.raises(CsmlError, match="a weight became non-finite"):
        training.save()  # a good checkpoint is never replaced by a bad one
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("*.pt")] == ["epoch-0000-step-000000.pt"]


def test_files_unreadable_in_the_held_out_fifth_are_judged_by_the_whole(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    for name in ("a", "b"):
        noise_photos(folder / name, 50)
    val = open_data(str(folder), ImagesConfig()).val
    assert val is not None
    for held_out in range(2):  # 2 of 20 held out, 2 of 100 in all
        (folder / val.name(held_out)).write_bytes(b"broken")
    words = [*SMALL_RUN, "--data", str(folder), "--epochs", "1", "--batch_size", "50", "--images.max_failed", "0.05"]
    done = csml("pretrain", *words, "--out", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("cannot be read") == 2
    assert "knn20" in read_metrics(tmp_path / "run" / "metrics.jsonl")[0]


def test_the_loss_falls_and_nothing_collapses(tmp_path: Path) -> None:
    training = in_process(
        tmp_path / "run", "--epochs", "4", "--monitor.knn_every", "0", "--images.synthetic_train", "500",
        "--optimizer.lr_per_256", "0.3", "--batch_size", "64", "--contrast.queue_length", "128",
    )  # fmt: skip
    training.fit()
    records = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert records[-1]["loss/stage4/a"] < records[-1]["chance"] - 0.1  # worst of 4 seeds: 0.20
    assert records[-1]["spread/stage4"] > 0.2  # worst of 4 seeds: 0.47; a collapse would be below 0.05


def test_one_unreadable_file_is_named_and_skipped_and_many_stop_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    noise_photos(folder, 40, ".jpg")
    (folder / "07.jpg").write_bytes(b"broken")
    words = [*SMALL_RUN, "--data", str(folder), "--batch_size", "16", "--epochs", "2", "--contrast.queue_length", "16"]
    out = tmp_path / "run"
    done = csml("pretrain", *words, "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("cannot be read: 07.jpg") == 1
    assert read_metrics(out / "metrics.jsonl")[-1]["failed"] == 1
    for i in range(8, 14):
        (folder / f"{i:02d}.jpg").write_bytes(b"broken")
    done = csml("pretrain", *words, "--out", str(tmp_path / "second"))
    assert done.returncode == 2
    assert "images.max_failed" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_learning_rate_rises_linearly_and_falls_as_a_cosine_to_zero() -> None:
    rates = [learning_rate(step, 100, 2.0) for step in range(101)]
    assert rates[0] == 2.0
    assert rates[50] == pytest.approx(1.0)
    assert rates[100] == pytest.approx(0.0)
    warm = [learning_rate(step, 100, 2.0, warmup_steps=10) for step in range(100)]
    assert warm[:11] == sorted(warm[:11])
    assert warm[10] == pytest.approx(2.0)


@pytest.mark.parametrize(("images", "length"), [(1_281_167, 65_536), (50_000, 4096), (5000, 512), (100, 50)])
def test_the_queue_is_an_eighth_of_the_data_by_default(images: int, length: int) -> None:
    config = configured("pretrain")
    assert queue_length(config.contrast, images) == length


def test_two_runs_started_at_once_get_directories_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = [new_run(None, "photos").root.name for _ in range(3)]
    assert names == ["photos-001", "photos-002", "photos-003"]


def test_a_run_too_short_for_neighbors_draws_a_warning(tmp_path: Path) -> None:
    words = [*SMALL_RUN, "--epochs", "1", "--monitor.knn_every", "0"]
    done = csml("pretrain", *words, "--out", str(tmp_path / "run"))
    assert "never uses a neighbour" in done.stderr


def test_a_queue_as_long_as_the_data_draws_a_warning(tmp_path: Path) -> None:
    words = [*SMALL_RUN, "--contrast.queue_length", "300", "--epochs", "1", "--monitor.knn_every", "0"]
    done = csml("pretrain", *words, "--out", str(tmp_path / "run"))
    assert done.returncode == 0
    assert "own past key" in done.stderr


def test_means_are_weighted_by_batch_size() -> None:
    means = EpochMeans()
    means.add({"loss": torch.tensor(1.0)}, 3)
    means.add({"loss": torch.tensor(5.0)}, 1)
    assert means.means() == {"loss": 2.0}


def test_spread_and_uniformity_tell_a_collapse() -> None:
    generator = torch.Generator().manual_seed(0)
    even = torch.nn.functional.normalize(torch.randn(2000, 64, generator=generator), dim=1)
    collapsed = torch.nn.functional.normalize(torch.ones(2000, 64) + 0.01 * even, dim=1)
    assert embedding_statistics(even)["spread"] == pytest.approx(1.0, abs=0.02)
    assert embedding_statistics(even)["uniformity"] == pytest.approx(-3.9, abs=0.1)
    assert embedding_statistics(collapsed)["spread"] < 0.05
    assert embedding_statistics(collapsed)["uniformity"] > -0.01
