"""`csml.select`: which images to label next, as a file to fill in."""

import logging
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from csml.api.data import data_setting, open_splits
from csml.api.run import PathLike, Run, path_of
from csml.api.session import device_for
from csml.api.settings import given, using_config
from csml.config import SelectConfig, is_weight_name
from csml.console import show_log
from csml.data.failures import Failures
from csml.data.image_names import Names, path_from_here
from csml.data.images import Images
from csml.data.tables import read_table, write_csv
from csml.distributed.launch import require_alone
from csml.distributed.world import World
from csml.errors import CsmlError
from csml.evaluation.selection import select_next
from csml.evaluation.stored_features import stored_features
from csml.program import program
from csml.runs.run_of_weights import directory_of
from csml.weights import load_backbone, load_classifier

log = logging.getLogger("csml")


@dataclass(frozen=True)
class ToLabel:
    """Images to label, the most valuable first; lists of equal length."""

    paths: list[str]
    scores: list[float]
    """value of each label, 0 to 1"""
    reasons: list[str]
    """why each was chosen"""
    known: dict[str, str]
    """labels so far, by path"""

    def __len__(self) -> int:
        return len(self.paths)


@show_log()
def select(
    weights: "Run | PathLike",
    n: int | str,
    *,
    data: Any = None,
    config: PathLike | None = None,
    **settings: Any,
) -> ToLabel:
    """Choose the n images whose labels would help most. No label is needed to start.

    Args:
        weights: a run, its directory, a weight file, or a name such as lite0. Uncertainty comes from the
            classifier of a run of `finetune`, otherwise from logistic regression on the labels.
        n: how many.
        data: the images to choose from; by default those of the run. Test images are not chosen.
        config: a YAML file of settings.
        settings: any setting of `csml select --help`, such as `by`, `labels` and `output`.
    """
    data, in_memory = data_setting(data, weights)
    made = select_config(weights, config=config, **given(data=data), **settings)
    require_alone("select", made.hardware)
    count = _count(n)
    output = None if made.output is None else Path(made.output).expanduser()
    if output is not None and output.exists() and made.output != made.labels:
        raise CsmlError(f"output: {output} exists; choose another, or give it as --labels too, to add to it")
    root = str(path_of(weights))
    splits = open_splits(World(), made.data, made.images, in_memory)
    images = splits.train
    labels, known = _known(images, made.labels, root)
    features, probabilities = _seen(root, images, made)
    chosen = select_next(features, labels, count, by=made.by, probabilities=probabilities, seed=made.seed)
    names = [path_from_here(images, id) for id in chosen.ids.tolist()]
    result = ToLabel(names, chosen.scores.tolist(), list(chosen.reasons), known)
    if output is not None:
        _write(output, result)
        again = shlex.join([program(), "finetune", root, "--labels", str(output)])
        log.info("%d images to label are in %s; fill in the column label, then:\n    %s", len(result), output, again)
    return result


def select_config(
    weights: "Run | PathLike", n: Any = None, *, config: PathLike | None = None, **settings: Any
) -> SelectConfig:
    """The settings that `select` would run with, checked; `n` is ignored."""
    return using_config(SelectConfig, str(path_of(weights)), settings, config=config)


def _count(n: int | str) -> int:
    try:
        count = int(n)
    except (ValueError, TypeError, OverflowError):
        count = 0
    if count < 1 or isinstance(n, bool) or (isinstance(n, float) and count != n):
        raise CsmlError(f"n: a number of images from 1 on, not {n}")
    return count


def _known(images: Images, table: str | None, weights: str) -> tuple[torch.Tensor, dict[str, str]]:
    """Labels so far `(N,)`, −1 where there is none, and by path: from the table, or else those of the run."""
    labels = np.full(len(images), -1)
    file = Path(table).expanduser() if table else directory_of(weights).labels
    if table is None and (is_weight_name(weights) or not file.exists()):
        log.info("no labels yet: the images are chosen to span the data")
        return torch.from_numpy(labels), {}
    names = Names(images)
    known: dict[str, str] = {}
    classes: dict[str, int] = {}
    for _, name, label in read_table(file):
        id = names.find(name)
        if id is None:
            log.warning("labels: %s is not among the images", name)
            continue
        labels[id] = classes.setdefault(label, len(classes))
        known[path_from_here(images, id)] = label
    log.info("%d labels of %d classes so far, from %s", len(known), len(classes), file)
    return torch.from_numpy(labels), known


def _seen(weights: str, images: Images, config: SelectConfig) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Features `(N, C)`, and the probabilities `(N, K)` of the run's classifier if it has one."""
    has_classifier = not is_weight_name(weights) and directory_of(weights).classifier.exists()
    classifier = load_classifier(weights)[0] if has_classifier else None
    backbone = load_backbone(weights, config.images.channels) if classifier is None else classifier.backbone
    fabric = device_for(images, config, backbone)
    failures = Failures(images, config.images.max_failed)
    found = stored_features(backbone.to(fabric.device), images, config.images, fabric, failures=failures)
    features = found.by_stage[4]
    if classifier is None:
        return features, None
    with torch.no_grad():
        blocks = [classifier.cpu().scores(block).softmax(dim=1) for block in features.split(65_536)]
    return features, torch.cat(blocks)


def _write(path: Path, result: ToLabel) -> None:
    """Path, label and reason: the labels so far, then the images to label."""
    try:
        labeled = [(name, label, "") for name, label in result.known.items()]
        to_label = [(name, "", reason) for name, reason in zip(result.paths, result.reasons, strict=True)]
        write_csv(path, [("path", "label", "reason"), *labeled, *to_label])
    except OSError as error:
        raise CsmlError(f"output: cannot write {path} ({error.strerror})") from error
