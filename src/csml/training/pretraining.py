"""Pre-training: crops → views → framework → loss; between epochs the search for neighbours and the online 20-NN."""

import copy
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric

from csml.config import STAGES, PretrainConfig
from csml.data.failures import Failures
from csml.data.images import Images, Subset, evenly_spaced
from csml.data.loading import CropBatch
from csml.data.open import DataSplits
from csml.data.sampling import BatchPlan, generator_for, plan_batch
from csml.distributed.device import memory_format
from csml.distributed.world import world_of
from csml.evaluation.features import Features, extract_features
from csml.evaluation.knn import TEMPERATURE, knn_accuracy
from csml.files import write_json
from csml.methods import StepResult
from csml.models.backbones import normalization
from csml.runs.directory import RunDirectory
from csml.runs.metrics import embedding_statistics
from csml.training.build import build_method, build_optimizer, peak_learning_rate
from csml.training.crops import SMALLEST_BATCH, crop_batches, crop_timetable
from csml.training.neighbor_search import NeighborSearch
from csml.training.start_comparison import Signals, StartComparison
from csml.training.task import LOWER_LEARNING_RATE, epoch_and_step
from csml.views.recipe import crop_specs, make_views
from csml.weights import load_backbone, save_backbone

log = logging.getLogger("csml")

_ONLINE_K = 20
_PATIENCE = 2
"""Early stopping: number of consecutive epochs that are worse than the start."""
_CENTER_SAMPLE = 4096
"""Number of images whose mean feature is the centre of the embeddings."""


class Pretraining:
    """The task of `csml pretrain`.

    Args:
        config: checked settings.
        data: the opened data; `data.train` is for training, the labelled splits only for evaluation.
        run: where weights and neighbour sets are written.
        fabric: device, precision and processes.
    """

    command = "pretrain"
    smallest_batch = SMALLEST_BATCH
    advice = LOWER_LEARNING_RATE

    def __init__(self, config: PretrainConfig, data: DataSplits, run: RunDirectory, fabric: Fabric) -> None:
        self.config, self.data, self.run, self.fabric = config, data, run, fabric
        self.world, self.device = world_of(fabric), fabric.device
        self.images, self.fingerprint = data.train, data.train.fingerprint()
        self.timetable = crop_timetable(config, len(data.train))
        # One collection per data set for the whole run, so that the log names an unreadable file only once.
        self.failures = self._failures(data.train)
        self._other_failures = {name: self._failures(getattr(data, name)) for name in ("labeled", "val")}
        start = load_backbone(run.start) if config.model.weights else None
        self.start_comparison = (
            None if start is None else StartComparison(data.labeled or data.train, config.images, fabric, start)
        )
        self.signals: Signals | None = None
        """signals of the backbone after the last epoch, compared with its start"""
        self.epochs_worse = 0
        """number of consecutive epochs after which the backbone was worse than its start"""
        self.network = build_method(config, len(data.train), self.world, self.device, start)
        self.normalization = normalization(self.network.query_encoder.backbone)
        for warning in self.network.warnings(config, len(data.train)):
            log.warning(warning)
        if config.hardware.compile:
            for encoder in self.network.encoders():
                encoder.compile()
        lr = peak_learning_rate(config.optimizer, config.batch_size)
        self.optimizer = build_optimizer([(self.network.parameters(), lr)], config.optimizer)
        self.search = NeighborSearch(config, data.train, self.failures, run, fabric, self.network)
        self.prepared = config.model.projection and not config.method.remembers
        """whether the pass over the images before the first epoch is done or not needed"""
        self._kept: tuple[tuple[int, str], Features] | None = None

    @property
    def stopped(self) -> bool:
        """Early stopping: whether the backbone has been worse than its start for too long."""
        return self.epochs_worse >= _PATIENCE

    # A step.

    def batches(self, epoch: int, step: int) -> Iterator[CropBatch]:
        config, specs = self.config, crop_specs(self.config)
        indices, similarities = self.search.sets_to_draw

        def plan(ids: np.ndarray, step: int) -> BatchPlan:
            numbers = generator_for(config.seed, epoch, step, 0)
            return plan_batch(ids, indices, len(specs), numbers, config.views.positives, similarities)

        return crop_batches(self.images, specs, plan, config, self.fabric, epoch, step)

    def before_step(self, progress: float) -> None:
        self.network.progress = progress

    def train_step(self, network: Any, batch: CropBatch, generator: torch.Generator) -> StepResult:
        config, device = self.config, self.device
        omega = self.search.neighbors_of(batch.anchors.numpy())  # (B, k)
        views = make_views(
            {name: crop.to(device, non_blocking=True) for name, crop in batch.crops.items()},
            batch.anchors.to(device, non_blocking=True),
            batch.neighbors.to(device, non_blocking=True),
            torch.from_numpy(omega).to(device, non_blocking=True),
            config.views,
            config.augmentation,
            generator,
            memory_format(config.hardware),
            batch.part,
            self.normalization,
        )
        result: StepResult = network(views, generator)
        return result

    def after_backward(self, outcomes: list[StepResult]) -> None:
        for result in outcomes:
            self.network.after_backward(result)
            self.search.after_backward(result)

    # Between epochs.

    def before_epoch(self, epoch: int) -> None:
        """Prepare before the first epoch, and search neighbours whenever a search is due."""
        if not self.prepared:
            self._prepare()
        if self.search.is_due(epoch):
            role = self.config.neighbors.encoder
            default_features = partial(self._features, self.images, self.failures, role, epoch)
            self.search.search(epoch, self.network.encoder(role).backbone, default_features)

    def _prepare(self) -> None:
        """Without a projection head, set the centre of the embeddings to the mean feature (docs/method.md#weights);
        with a memory of keys, fill it (docs/method.md#memory)."""
        remembers, last = self.config.method.remembers, STAGES[-1]
        some = self.images if remembers else evenly_spaced(self.images, _CENTER_SAMPLE)
        backbone = self.network.query_encoder.backbone
        failures = Failures(some, 1.0, quiet=True)  # training reports them
        as_learnt = replace(self.config.images, eval_size=None)  # the size of the crops for keys
        features = extract_features(backbone, some, as_learnt, self.fabric, failures=failures)
        pooled, _ = features.readable(last)  # (n, F)
        if not self.config.model.projection:
            for encoder in self.network.encoders():
                encoder.heads[str(last)].get_buffer("center").copy_(pooled.mean(dim=0))
        if remembers:
            self.network.remember(pooled.to(self.device), features.good.nonzero()[:, 0].to(self.device))
        self.prepared = True

    def end_epoch(self, epoch: int, record: dict[str, Any]) -> str:
        record |= {"chance": self.network.chance, **self.search.metrics}
        self.search.metrics = {}
        for stage, keys in self.network.recent_keys().items():
            for name, value in embedding_statistics(keys).items():
                record[f"{name}/stage{stage}"] = value
            record[f"alignment/stage{stage}"] = 2 - 2 * record[f"positive/stage{stage}"]  # mean ‖q_a − k_a‖²
        if self.start_comparison is not None:
            record |= self._compare_with_start(self.start_comparison)
        every = self.config.monitor.knn_every
        if every and (epoch % every == 0 or epoch == self.config.epochs):
            record |= self.online_knn(epoch)
        return _summary(record, self.config.epochs)

    def _compare_with_start(self, start_comparison: StartComparison) -> dict[str, Any]:
        """Signals of the backbone; the run stops if it stays worse than its start."""
        self.signals = signals = start_comparison.signals(self.network.query_encoder.backbone)
        self.epochs_worse = self.epochs_worse + 1 if start_comparison.is_worse(signals) else 0
        if self.stopped:
            log.warning("the features stay worse than those of the starting weights; the run stops here")
        known = {"start/rank_me": signals.rank, "start/agreement": signals.agreement}
        return known if signals.knn20 is None else known | {"start/knn20": signals.knn20}

    def save_best_point(self) -> None:
        """Save the best point between start and end of the run as the backbone, and write the comparison."""
        if self.start_comparison is None:
            return
        backbone = copy.deepcopy(self.network.query_encoder.backbone)
        share, compared = self.start_comparison.choose(backbone, self.signals)
        if self.world.is_rank_zero:
            save_backbone(self.run.backbone, backbone, self.config.model, self.config.images)
            write_json(self.run.kept, compared)
            log.info(_kept_line(share, compared))

    def online_knn(self, epoch: int) -> dict[str, float]:
        """The 20-NN accuracy with the current weights; empty without labels."""
        if self.data.labeled is None or self.data.val is None:
            return {}
        train = self._features(self.data.labeled, self._other_failures["labeled"], "query", epoch)
        test = self._features(self.data.val, self._other_failures["val"], "query", epoch)
        accuracy, _, _ = knn_accuracy(train, test, 4, [_ONLINE_K], TEMPERATURE, self.fabric)
        return {"knn20": accuracy[0]}

    def save_weights(self) -> None:
        save_backbone(self.run.backbone, self.network.query_encoder.backbone, self.config.model, self.config.images)

    def where(self, epoch: int, step: int) -> str:
        return epoch_and_step(self.timetable, epoch, step)

    def _failures(self, images: Images | None) -> Failures:
        return Failures(self.data.train if images is None else images, self.config.images.max_failed)

    def _features(self, images: Images, failures: Failures, role: str, epoch: int) -> Features:
        """This process's share of the features, with the weights after `epoch` epochs. Those of the training set are
        cached until the next epoch, because the 20-NN and the search share them."""
        train = self.data.train
        if isinstance(images, Subset) and images.images is train:
            return self._features(train, self.failures, role, epoch).subset(images.ids)
        if images is train and self._kept is not None and self._kept[0] == (epoch, role):
            return self._kept[1]
        features = extract_features(
            self.network.encoder(role).backbone,
            images,
            self.config.images,
            self.fabric,
            failures=self.failures if images is train else failures,
            unit_halves=True,
            only_mine=True,
        )
        if images is train:
            self._kept = (epoch, role), features
        return features

    # Checkpoints.

    def state_dict(self) -> dict[str, Any]:
        return {
            **self.search.state_dict(),
            "prepared": self.prepared,
            "epochs_worse": self.epochs_worse,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.search.load_state_dict(state)
        self.prepared = state.get("prepared", state.get("centered", self.prepared))
        self.epochs_worse = state.get("epochs_worse", 0)


def _kept_line(share: float, compared: dict[str, Any]) -> str:
    """The log line about the chosen backbone."""
    where = {0.0: "the starting weights", 1.0: "the trained weights"}.get(
        share, f"{share:.0%} of the way from the start"
    )
    start, best = (compared["compared"][f"{point:g}"]["knn20"] for point in (0.0, share))
    figures = "" if start is None else f" ({best:.1%}; the start {start:.1%})"
    return f"backbone: {where}, because {compared['why']}{figures}"


def _summary(record: dict[str, Any], epochs: int) -> str:
    words = [
        f"epoch {record['epoch']:>{len(str(epochs))}}/{epochs}",
        f"loss {record['loss/stage4/a']:.3f} (chance {record['chance']:.2f})",
        *([f"own view found {record['accuracy/stage4']:.1%}"] if "accuracy/stage4" in record else []),
        f"{record['images_per_second']:,.0f} images/s",
    ]
    if record.get("omega/purity") is not None:
        words.append(f"Ω purity {record['omega/purity']:.1%}")
    if record.get("start/knn20") is not None:
        words.append(f"20-NN of training images {record['start/knn20']:.1%}")
    if "knn20" in record:
        words.append(f"20-NN {record['knn20']:.1%}")
    return "  ".join(words)
