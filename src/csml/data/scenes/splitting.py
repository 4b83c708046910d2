"""Training and test scenes: by the parts of the data, or drawn at random with every class in both."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from csml.data.images import FileImages, source_ids, source_of
from csml.data.scenes.annotations import Annotations, Scenes
from csml.data.scenes.raw_annotations import Part
from csml.errors import CsmlError, some
from csml.files import checksum


def chosen_parts(
    parts: Sequence[Part], train: Sequence[str], test: Sequence[str], root: Path
) -> tuple[list[Part], list[Part]]:
    """The parts to train and to test on; no part to test on means that test scenes must be drawn.

    Args:
        parts: all parts of the data.
        train, test: names of parts; if empty, those with this role: val before test.
        root: the folder, for messages.
    """
    roles = {role: [part for part in parts if part.role == role] for role in ("train", "val", "test")}
    without = [part for part in parts if part.role is None]
    testing = _named(parts, test, "test", root) if test else _alone(roles["val"] or roles["test"], "test", root)
    if train:
        return _named(parts, train, "train", root), testing
    training = roles["train"] or without
    if not training:
        raise CsmlError(f"train: {root} has only {_names(parts)}; name what to train on with --train")
    return _alone(training, "train", root), testing


def _named(parts: Sequence[Part], names: Sequence[str], key: str, root: Path) -> list[Part]:
    found = []
    for name in names:
        fitting = [part for part in parts if name in (part.name, Path(part.name).name, Path(part.name).stem)]
        if not fitting:
            raise CsmlError(f"{key}: {root} has no {name}; there are {_names(parts)}")
        found.append(fitting[0])
    return found


def _alone(parts: list[Part], key: str, root: Path) -> list[Part]:
    lists = len(parts) > 1 and all(part.role is None for part in parts)
    if len(parts) > 1 and (lists or not parts[0].joins):
        raise CsmlError(f"{key}: {root} has several: {_names(parts)}; name one with --{key}")
    return parts


def _names(parts: Sequence[Part]) -> str:
    return some(sorted(part.name for part in parts), 10)


def stratified(
    annotations: Annotations, share: float, seed: int, first_copy: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Ids to train and to test on. Scenes are grouped by their rarest class, and each group contributes its share.

    A class whose group has two or more scenes is in both splits.

    Args:
        annotations: of all scenes.
        share: share of the scenes to test on.
        seed: of the random draw.
        first_copy: `copies` of the scenes; those of one image stay together. None: no copies.
    """
    rng = np.random.default_rng(seed)
    firsts = np.arange(len(annotations)) if first_copy is None else first_copy
    classes: dict[int, set[int]] = {}
    for id, first in enumerate(firsts.tolist()):
        classes.setdefault(first, set()).update(annotations.objects(id).labels.tolist())
    counts: dict[int, int] = {}
    for on_scene in classes.values():
        for label in on_scene:
            counts[label] = counts.get(label, 0) + 1
    groups: dict[int, list[int]] = {}
    for first, on_scene in classes.items():
        rarest = min(on_scene, key=lambda label: (counts[label], label), default=-1)
        groups.setdefault(rarest, []).append(first)
    test: list[int] = []
    owed = 0.0  # remainder from rounding earlier groups
    for label in sorted(groups, key=lambda label: (len(groups[label]), label)):
        group = rng.permutation(groups[label])
        owed += share * len(group)
        most = len(group) - 1
        taken = min(max(round(owed), 1 if most else 0), most)
        owed -= taken
        test += group[:taken].tolist()
    if not test:
        raise CsmlError(f"split: {len(annotations)} annotated images are too few to test on {share:g} of them")
    tested = np.isin(firsts, test)
    return np.flatnonzero(~tested), np.flatnonzero(tested)


def copies(scenes: Scenes) -> np.ndarray:
    """`(N,)`: for each scene the first one whose image file has the same content; its own id if there is none."""
    files = _files(scenes)
    firsts = np.arange(len(scenes))
    if len(files) < len(scenes):  # images in memory
        return firsts
    sizes: dict[int, list[int]] = {}
    for id, path in enumerate(files):
        sizes.setdefault(path.stat().st_size, []).append(id)
    known: dict[Path, str] = {}
    for ids in sizes.values():
        by_content: dict[str, int] = {}
        for id in ids if len(ids) > 1 else ():
            firsts[id] = by_content.setdefault(_digest(files[id], known), id)
    return firsts


def repeated(train: Scenes, test: Scenes) -> list[str]:
    """Names of the test images whose content also occurs among the training images."""
    ours, theirs = _files(train), _files(test)
    sizes: dict[int, list[Path]] = {}
    for path in ours:
        if path.exists():
            sizes.setdefault(path.stat().st_size, []).append(path)
    known: dict[Path, str] = {}
    found = []
    for path in theirs:
        alike = sizes.get(path.stat().st_size, []) if path.exists() else []
        if path in alike or any(_digest(other, known) == _digest(path, known) for other in alike):
            found.append(path.name)
    return found


def _digest(path: Path, known: dict[Path, str]) -> str:
    if path not in known:
        known[path] = checksum(path)
    return known[path]


def _files(scenes: Scenes) -> list[Path]:
    images = source_of(scenes.images)
    if not isinstance(images, FileImages):
        return []
    sources = (images.source(int(id)) for id in source_ids(scenes.images))
    return [path for path in sources if isinstance(path, Path)]
