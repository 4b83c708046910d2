"""Multinomial logistic regression with an L2 penalty, in float64: the linear layer for a few labels."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from csml.distributed.threads import one_thread

_ITERATIONS = 300
"""Largest number of iterations of a fit; some tens are typical."""

Linear = tuple[Tensor, Tensor]
"""Weight `(classes, C)` and bias `(classes,)`: features `(N, C)` → scores `(N, classes)`."""


@one_thread()
def fit_logistic(
    features: Tensor, labels: Tensor, classes: int, penalties: Sequence[float], tolerance: float = 1e-4
) -> list[Linear]:
    """Minimise mean cross-entropy + penalty / 2 · ‖weight‖² for each penalty; the bias is not penalised.

    The best weight is a combination of the rows of `features`, so the fit uses their singular vectors:
    N labels give at most N coordinates for each class, whatever the dimension of a feature. Each coordinate is scaled
    by a bound of the curvature along it, and each fit starts from the one before.

    Args:
        features: `(N, C)`.
        labels: `(N,)` int64, 0 … classes − 1, or `(N, classes)`, the share of each class. A class may be absent.
        classes: number of classes.
        penalties: above 0.
        tolerance: largest entry of the scaled gradient at which a fit ends.

    Returns:
        The linear layer of each penalty, float64.
    """
    features = features.double()
    mean = features.mean(0)  # absorbed by the bias; without it the curvature differs less between coordinates
    rows, sizes, basis = torch.linalg.svd(features - mean, full_matrices=False)  # (N, r), (r,), (r, C)
    start, fits = features.new_zeros(classes, len(sizes) + 1), []  # the last column is the bias
    for penalty in penalties:
        scale = (sizes.square() / (2 * len(features)) + penalty).rsqrt()  # (r,)
        solution = _minimise(rows * (sizes * scale), labels, start, penalty * scale.square(), tolerance)
        weight = solution[:, :-1] * scale @ basis  # (classes, C)
        fits.append((weight, solution[:, -1] - weight @ mean))
        start = solution
    return fits


def _minimise(features: Tensor, labels: Tensor, start: Tensor, penalties: Tensor, tolerance: float) -> Tensor:
    """The minimum for scaled features `(N, r)` with a penalty per coordinate `(r,)`; `(classes, r + 1)`."""
    solution = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [solution], max_iter=_ITERATIONS, tolerance_grad=tolerance, tolerance_change=0.0, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        weight, bias = solution[:, :-1], solution[:, -1]
        value = F.cross_entropy(features @ weight.T + bias, labels) + (penalties * weight.square()).sum() / 2
        value.backward()
        return value

    optimizer.step(loss)
    return solution.detach()
