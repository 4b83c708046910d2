"""Batches: who is in them, and what happens to files that cannot be read."""

from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from conftest import configured
from csml.config import ImagesConfig, PretrainConfig, ViewsConfig
from csml.data import ArrayImages, Images, open_data
from csml.data.failures import Failures
from csml.data.loading import _report_unless_parent_died, center_batches, consecutive, view_batches
from csml.data.sampling import epoch_batches, generator_for, plan_batch, steps_per_epoch
from csml.errors import CsmlError
from csml.views import crop_specs
from processes import FORKED


@given(images=st.integers(2, 300), batch=st.integers(2, 80), seed=st.integers(0, 5), epoch=st.integers(0, 3))
def test_an_epoch_visits_every_image_once(images: int, batch: int, seed: int, epoch: int) -> None:
    batches = epoch_batches(images, batch, seed, epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(images))
    assert all(len(ids) >= 2 for ids in batches)
    assert all(len(ids) == batch for ids in batches[:-1])
    assert len(batches) == steps_per_epoch(images, batch)


def test_epochs_and_seeds_differ_and_repeat() -> None:
    order = [
        np.concatenate(epoch_batches(100, 10, seed, epoch)).tolist() for seed, epoch in ((0, 0), (0, 1), (1, 0), (0, 0))
    ]
    assert order[0] == order[3]
    assert order[0] != order[1]
    assert order[0] != order[2]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_streams_of_different_keys_differ(one: list[int], two: list[int]) -> None:
    numbers = [torch.rand(4, generator=generator_for(*key)).tolist() for key in (one, two)]
    assert (numbers[0] == numbers[1]) is (one == two)


def test_neighbors_are_drawn_uniformly_from_omega() -> None:
    omega = np.arange(40).reshape(4, 10) + 100
    anchors = np.repeat(np.arange(4), 5000)
    plan = plan_batch(anchors, omega, views=1, generator=generator_for(0))
    for anchor in range(4):
        drawn, counts = np.unique(plan.neighbors[0, anchors == anchor], return_counts=True)
        assert drawn.tolist() == omega[anchor].tolist()
        assert counts.min() > 400
        assert counts.max() < 600


def test_similar_neighbors_are_drawn_more_often_where_that_is_wanted() -> None:
    similarities = np.array([[0.9, 0.83, 0.76]], np.float32)  # each 1 / e as likely as the one before
    anchors = np.zeros(20_000, np.int64)
    plan = plan_batch(anchors, np.array([[5, 6, 7]]), 1, generator_for(0), similarities=similarities)
    expected = np.exp([0.0, -1.0, -2.0]) / np.exp([0.0, -1.0, -2.0]).sum()
    assert np.bincount(plan.neighbors[0])[5:] / 20_000 == pytest.approx(expected, abs=0.01)


def test_several_neighbors_of_an_anchor_are_different_and_each_is_uniform() -> None:
    omega = np.arange(20).reshape(4, 5) + 100
    anchors = np.repeat(np.arange(4), 5000)
    plan = plan_batch(anchors, omega, views=1, generator=generator_for(0), positives=3)
    assert plan.neighbors.shape == (3, 20_000)
    ordered = np.sort(plan.neighbors, axis=0)
    assert (ordered[1:] != ordered[:-1]).all()
    for drawn in plan.neighbors:
        counts = np.bincount(drawn, minlength=120)[100:]
        assert counts.min() > 850
        assert counts.max() < 1150


def test_one_neighbor_is_drawn_as_the_first_of_several() -> None:
    omega, anchors = np.arange(40).reshape(4, 10), np.arange(4)
    one, two = (plan_batch(anchors, omega, 1, generator_for(0), positives) for positives in (1, 2))
    assert one.neighbors[0].tolist() == two.neighbors[0].tolist()


def test_before_the_first_search_the_neighbor_is_the_anchor() -> None:
    plan = plan_batch(np.array([5, 6]), None, views=2, generator=generator_for(0))
    assert plan.neighbors.tolist() == [[5, 6]]


def grey_array(count: int) -> ArrayImages:
    """Image i is uniformly grey with value i."""
    pixels = np.broadcast_to(np.arange(count, dtype=np.uint8)[:, None, None, None], (count, 20, 20, 3)).copy()
    return ArrayImages(pixels, np.zeros(count, np.int64), ("x",), "grey")


def grey_folder(root: Path, count: int, broken: tuple[int, ...] = ()) -> Images:
    for i in range(count):
        if i in broken:
            (root / f"{i:03d}.png").write_bytes(b"broken")
        else:
            Image.new("RGB", (20 + i, 25), (i, i, i)).save(root / f"{i:03d}.png")
    return open_data(str(root), ImagesConfig()).train


@pytest.mark.parametrize("kind", ["array", "folder"])
@pytest.mark.parametrize("workers", [0, 2])
def test_crops_show_the_image_they_are_said_to_show(tmp_path: Path, kind: str, workers: int) -> None:
    images: Images = grey_array(30) if kind == "array" else grey_folder(tmp_path, 30)
    config = PretrainConfig(images=ImagesConfig(size=8))
    omega = np.stack([(np.arange(30) + 1) % 30], axis=1)
    plans = [
        plan_batch(ids, omega, len(crop_specs(config)), generator_for(0, step))
        for step, ids in enumerate(epoch_batches(30, 8, 0, 0))
    ]
    batches = list(view_batches(images, plans, crop_specs(config), workers))
    assert [batch.anchors.tolist() for batch in batches] == [plan.anchors.tolist() for plan in plans]
    for batch in batches:
        assert list(batch.crops) == ["query_a", "query_p", "key_a", "key_p"]
        for name, crop in batch.crops.items():
            shown = batch.anchors if name.endswith("_a") else batch.neighbors[0]
            assert crop.shape == (len(shown), 3, 8, 8)
            assert torch.equal(crop.amax(dim=(1, 2, 3)), shown.to(torch.uint8))
            assert torch.equal(crop.amin(dim=(1, 2, 3)), shown.to(torch.uint8))
        assert torch.equal(batch.neighbors[0], (batch.anchors + 1) % 30)


def test_small_crops_and_several_neighbors_show_their_own_image(tmp_path: Path) -> None:
    config = PretrainConfig(views=ViewsConfig(positives=2, small_crops=2), images=ImagesConfig(size=16))
    specs = crop_specs(config)
    omega = np.stack([(np.arange(12) + 1) % 12, (np.arange(12) + 2) % 12], axis=1)
    plan = plan_batch(np.arange(12), omega, len(specs), generator_for(0), positives=2)
    batch = next(view_batches(grey_folder(tmp_path, 12), [plan], specs, workers=0))
    assert set((batch.neighbors - batch.anchors).flatten().tolist()) <= {1, 2, -10, -11}
    sources = {"a": batch.anchors, "p": batch.neighbors[0], "p2": batch.neighbors[1]}
    for spec in specs:
        shown = sources[spec.name.split("_")[1]].to(torch.uint8)
        assert batch.crops[spec.name].shape[-1] == (8 if spec.name.startswith("small") else 16)
        assert torch.equal(batch.crops[spec.name].amax(dim=(1, 2, 3)), shown)


def test_neighbors_of_which_no_view_is_wanted_are_not_opened(tmp_path: Path) -> None:
    words = ["--views.neighbor_views", "false", "--views.mix", "none", "--contrast.memory", "true"]
    specs = crop_specs(configured("pretrain", "--preset", "demo", "--model.stages", "[4]", *words))
    images = grey_folder(tmp_path, 12)
    for i in range(6, 12):
        Path(images.source(i)).write_bytes(b"no picture")
    plan = plan_batch(np.arange(6), np.arange(12)[::-1][:6, None], len(specs), generator_for(0))
    batch = next(view_batches(images, [plan], specs, workers=0))
    assert not batch.failed and batch.size == 6
    assert {spec.image for spec in specs} == {0} and set(batch.crops) == {spec.name for spec in specs}


def test_the_same_plan_gives_the_same_crops_whatever_the_workers(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(6):
        Image.fromarray(rng.integers(0, 256, (30, 40, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
    images = open_data(str(tmp_path), ImagesConfig()).train
    config = PretrainConfig(images=ImagesConfig(size=8))
    plans = [plan_batch(np.arange(6), None, 4, generator_for(0))]
    one, two = (next(view_batches(images, plans, crop_specs(config), workers)) for workers in (0, 1))
    assert all(torch.equal(one.crops[name], two.crops[name]) for name in one.crops)


def test_unreadable_anchors_leave_the_batch_and_unreadable_neighbors_are_replaced(tmp_path: Path) -> None:
    images = grey_folder(tmp_path, 6, broken=(2,))
    config = PretrainConfig(images=ImagesConfig(size=8))
    omega = np.array([[2], [0], [0], [2], [0], [0]])  # 0 and 3 have the broken image as their neighbour
    plan = plan_batch(np.arange(6), omega, 4, generator_for(0))
    batch = next(view_batches(images, [plan], crop_specs(config), workers=0))
    assert batch.anchors.tolist() == [0, 1, 3, 4, 5]
    assert batch.neighbors.tolist() == [[0, 0, 3, 0, 0]]  # x_p = x_a where it cannot be read
    assert set(batch.failed) == {2}
    assert batch.crops["query_p"].amax(dim=(1, 2, 3)).tolist() == [0, 0, 3, 0, 0]


def test_centre_crops_come_in_the_order_of_the_ids(tmp_path: Path) -> None:
    images = grey_folder(tmp_path, 7, broken=(3,))
    batches = list(center_batches(images, ImagesConfig(size=8, eval_crop=1.0), consecutive(images, 4), workers=0))
    assert torch.cat([batch.ids for batch in batches]).tolist() == list(range(7))
    assert torch.cat([batch.good for batch in batches]).tolist() == [True] * 3 + [False] + [True] * 3
    assert torch.cat([batch.crops for batch in batches]).amax(dim=(1, 2, 3)).tolist() == [0, 1, 2, 0, 4, 5, 6]


def test_failures_are_named_once_and_tolerated_up_to_a_share(caplog: pytest.LogCaptureFixture) -> None:
    failures = Failures(grey_array(100), tolerated=0.02)
    with caplog.at_level("WARNING", logger="csml"):
        failures.add([7])
        failures.add([7, 8])
    assert [record.getMessage() for record in caplog.records if "grey/7" in record.getMessage()] == [
        "skipped, cannot be read: grey/7 (it can be read now)"
    ]
    with pytest.raises(CsmlError, match=r"3 of 100 .* --images\.max_failed"):
        failures.add([9])


def test_a_crop_of_a_large_jpeg_shows_what_a_full_decode_shows(tmp_path: Path) -> None:
    """Large photos are decoded at a fraction of their size; turned ones too."""
    y, x = np.mgrid[0:900, 0:1200]
    waves = 128 + 100 * np.stack([np.sin(x / 90), np.cos(y / 70), np.sin((x + y) / 110)], axis=2)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(waves.astype(np.uint8)).save(tmp_path / "large.jpg", quality=95, exif=exif)
    images = open_data(str(tmp_path), ImagesConfig(labels="none")).train
    box = [100, 60, 800, 640]  # top, left, height, width of the upright picture
    (crop,), good = images.cut(np.array([0]), [(lambda rows, sizes: torch.tensor([box]), 64)])
    part = images.read(0).crop((60, 100, 700, 900)).resize((64, 64), Image.Resampling.BILINEAR)
    assert good.all()
    difference = crop[0].permute(1, 2, 0).float() - torch.from_numpy(np.asarray(part).astype(np.float32))
    assert difference.abs().max() < 8
    assert difference.abs().mean() < 1


def _pickle_and_end(file: Path) -> None:
    plan = plan_batch(np.array([5, 6]), None, views=2, generator=generator_for(0))
    file.write_bytes(ForkingPickler.dumps(plan))


def test_a_plan_outlives_the_process_that_made_it(tmp_path: Path) -> None:
    """A worker reads it perhaps just after its parent was killed; what torch sends as a handle is gone then."""
    process = FORKED.Process(target=_pickle_and_end, args=(tmp_path / "plan",))
    process.start()
    process.join(120)
    plan = ForkingPickler.loads((tmp_path / "plan").read_bytes())
    expected = plan_batch(np.array([5, 6]), None, views=2, generator=generator_for(0))
    assert torch.equal(plan.numbers, expected.numbers) and plan.part == expected.part
    assert np.array_equal(plan.anchors, expected.anchors) and np.array_equal(plan.neighbors, expected.neighbors)


def test_a_worker_does_not_report_that_its_parent_was_killed(capsys: pytest.CaptureFixture[str]) -> None:
    _report_unless_parent_died(ConnectionResetError, ConnectionResetError(104, "Connection reset by peer"), None)
    assert capsys.readouterr().err == ""
    _report_unless_parent_died(ValueError, ValueError("a mistake"), None)
    assert "a mistake" in capsys.readouterr().err
