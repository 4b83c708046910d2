"""The state of the explorer: all images of a run, their map, neighbours and predictions."""

import csv
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from csml.config import ImagesConfig
from csml.data.decode import Decodable
from csml.data.images import UNLABELED, ArrayImages, Images, cut_picture, source_of
from csml.data.tables import read_table
from csml.evaluation.accuracy import entropy
from csml.evaluation.features import prepare
from csml.evaluation.index import SearchIndex, open_index
from csml.evaluation.knn import TEMPERATURE, tally
from csml.evaluation.predictions import predict
from csml.files import atomic_write, cache_key
from csml.models.backbones import FeatureNet, normalization
from csml.pixels import center_boxes, crop_resize
from csml.progress import watched
from csml.reporting.embedding import embed
from csml.reporting.runs import FinishedRun
from csml.reporting.seen import VOTERS, Opened, open_seeing
from csml.search.nearest_neighbors import top_k
from csml.weights import load_classifier, weights_digest

_BLOCK = 4096
NOTHING = -1
"""Stands for a missing label or prediction."""


@dataclass
class Explored:
    """N images by id, and everything that the page shows of them."""

    run: FinishedRun
    opened: Opened
    images: Images
    index: SearchIndex
    columns: np.ndarray
    """float32 `(6, N)`: x, y, label, cluster, predicted label, entropy in nats; −1 where unknown"""
    predicted_classes: tuple[str, ...]
    settings: str
    """how the map was made, as a sentence"""
    labels_file: Path

    def __post_init__(self) -> None:
        self.lock = threading.Lock()

    def neighbors(self, id: int, k: int) -> list[tuple[int, float]]:
        """The images nearest to one of the images, without itself."""
        return [pair for pair in self._nearest(self.index.features[id : id + 1], k + 1) if pair[0] != id][:k]

    @torch.no_grad()
    def search(self, picture: Decodable, k: int) -> list[tuple[int, float]]:
        """The images nearest to a picture from anywhere."""
        config, device = self.opened.config, self.opened.fabric.device
        with self.lock, self.opened.fabric.autocast():
            image = prepare(self._crop(picture, config), device, normalization(self.opened.net))
            feature = FeatureNet(self.opened.net)(image)[4]
        return self._nearest(feature.float().cpu(), k)

    def _crop(self, picture: Decodable, config: ImagesConfig) -> torch.Tensor:
        """uint8 `(1, C, S, S)`, cropped like the images of the data, so that the same picture has the same features."""
        boxes = center_boxes(torch.tensor([[picture.height, picture.width]]), config.eval_crop)
        if isinstance(source_of(self.images), ArrayImages):
            return crop_resize(torch.from_numpy(np.array(picture.rgb()))[None], boxes, config.size)
        (cut,) = cut_picture(picture, boxes.numpy(), [config.size])
        return torch.from_numpy(cut).permute(2, 0, 1)[None]

    def _nearest(self, feature: torch.Tensor, k: int) -> list[tuple[int, float]]:
        ids, similarities = self.index.search(feature, min(k, len(self.images)))
        return list(zip(ids[0].tolist(), similarities[0].tolist(), strict=True))

    def label(self, ids: list[int], label: str) -> int:
        """Write the label of some images to the CSV that `csml finetune --labels` reads; returns the rows it has."""
        with self.lock:
            rows = read_labels(self.labels_file)
            rows |= dict.fromkeys((self.images.name(id) for id in ids), label)
            with (
                atomic_write(self.labels_file) as temporary,
                temporary.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file,
            ):
                csv.writer(file).writerows([("path", "label"), *rows.items()])
            return len(rows)


def read_labels(file: Path) -> dict[str, str]:
    """The labels in the file: path → label."""
    if not file.exists():
        return {}
    return {name: label for _, name, label in read_table(file)}


def explore(run: FinishedRun, seed: int = 0) -> Explored:
    """Make or reuse the index, the map and the predictions of all images of a run."""
    opened = open_seeing(run)
    images = opened.data.train
    opened.net.eval()
    index = open_index(run.files.explore_index, opened.net, images, opened.config, opened.fabric)
    key = cache_key(weights_digest(run.root), images.fingerprint(), seed)
    file = run.files.explore_map(key)
    if not file.exists():
        features = index.features.float()  # (N, C)
        made = embed(features, k=0, seed=seed)
        predicted, certainty = _predictions(run, opened, images, features)
        columns = np.stack([made.points[:, 0], made.points[:, 1], images.labels, made.clusters, predicted, certainty])
        with atomic_write(file) as temporary, temporary.open("wb") as written:
            np.savez(written, columns=columns.astype(np.float32), settings=made.settings)
    with np.load(file) as stored:
        columns, settings = stored["columns"], str(stored["settings"])
    classes = load_classifier(run.root)[1]["classes"] if _is_classifier(run) else images.classes
    return Explored(run, opened, images, index, columns, tuple(classes), settings, run.files.explore_labels)


def _is_classifier(run: FinishedRun) -> bool:
    return run.files.classifier.exists()


def _predictions(
    run: FinishedRun, opened: Opened, images: Images, features: torch.Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """Label and entropy `(N,)` by the classifier of the run or, without one, by the vote of 20 neighbours."""
    if _is_classifier(run):
        classifier, _ = load_classifier(run.root)
        batches = predict(classifier, images, opened.config, opened.fabric)
        predicted = list(watched(batches, "predicting", total=-(-len(images) // 256)))
        good = torch.cat([b.good for b in predicted])
        labels = torch.cat([b.labels for b in predicted]).where(good, NOTHING)
        return labels.numpy(), torch.cat([b.entropies for b in predicted]).where(good, float(NOTHING)).numpy()
    labels = torch.from_numpy(images.labels)
    if not bool((labels != UNLABELED).any()) or len(images) < 2:
        return np.full(len(images), NOTHING), np.full(len(images), NOTHING)
    found, certainty = torch.full((len(images),), NOTHING), torch.full((len(images),), float(NOTHING))
    neighbors, similarities = top_k(features, min(VOTERS, len(images) - 1))
    for rows in torch.arange(len(images)).split(_BLOCK):
        votes = tally(neighbors[rows], similarities[rows], labels, len(images.classes), TEMPERATURE)  # (b, classes)
        total = votes.sum(1)
        known = (total > 0) & (features[rows].norm(dim=1) > 0)  # a labelled neighbour voted, and the image is readable
        found[rows[known]] = votes[known].argmax(1)
        certainty[rows[known]] = entropy(votes[known] / total[known, None])
    return found.numpy(), certainty.numpy()
