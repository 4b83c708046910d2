"""Folds for cross-validation on a few labels: stratified, and repeated if there are very few labels."""

import numpy as np

ALWAYS_KEPT = -1
"""Fold of a label that is never held out, because it is the only one of its class."""
_FOLDS = 5
_ENOUGH = 100
"""Sufficient number of out-of-fold predictions; with fewer labels the folds are drawn repeatedly."""
_REPEATS = 5


def draw_folds(labels: np.ndarray, seed: int, repeats: int | None = None) -> np.ndarray:
    """Folds `(R, N)` of labels `(N,)`, numbered from 0; each class is spread evenly over the folds of a repetition.

    There are five folds, or as many as half of the classes have labels for, so that every class loses about the same
    share of its labels in each fold. A class with a single label is never held out. R is 0 if no class has two labels.

    Args:
        labels: class of each label.
        seed: the same seed gives the same folds.
        repeats: number of times that folds are drawn; by default up to five, until there are a hundred predictions.
    """
    _, place, counts = np.unique(labels, return_inverse=True, return_counts=True)
    several = counts[counts > 1]
    if not len(several):
        return np.empty((0, len(labels)), np.int64)
    count = int(np.clip(np.median(several), 2, _FOLDS))
    repeats = repeats or int(np.clip(-(-_ENOUGH // several.sum()), 1, _REPEATS))
    folds = np.full((repeats, len(labels)), ALWAYS_KEPT)
    for number in range(repeats):
        rng = np.random.default_rng((seed, number))
        start = 0  # continue where the last class ended, so that folds have equal sizes
        for label in rng.permutation(len(counts)):
            if counts[label] > 1:
                members = rng.permutation(np.flatnonzero(place == label))
                folds[number, members] = (start + np.arange(len(members))) % count
                start += len(members)
    return folds
