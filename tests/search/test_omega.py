"""What is measured about Ω, on cases small enough to count by hand."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from csml.errors import CsmlError
from csml.search.omega import Omega, filter_neighbors, purity, save_omega, search_omega, turnover


def test_purity_counts_pairs_with_equal_labels() -> None:
    indices = np.array([[1, 2], [0, 2], [0, 1]])
    assert purity(indices, np.array([0, 0, 1])) == pytest.approx(2 / 6)


def test_purity_ignores_what_has_no_label() -> None:
    indices = np.array([[1], [0], [0]])
    assert purity(indices, np.array([0, 0, -1])) == 1.0
    assert purity(indices, np.array([-1, -1, -1])) is None


def test_an_image_is_no_neighbor_of_its_own() -> None:
    assert purity(np.array([[0, 1], [1, 1]]), np.array([0, 1])) == 0.0
    assert purity(np.array([[0], [1]]), np.array([0, 1])) is None


@given(st.integers(0, 1000), st.floats(0.05, 1.0), st.booleans())
def test_thinning_keeps_the_most_similar_pairs_and_the_mutual_ones(seed: int, keep: float, mutual: bool) -> None:
    features = torch.randn(30, 6, generator=torch.Generator().manual_seed(seed))
    before = search_omega(features, torch.ones(30, dtype=torch.bool), k=4, epoch=2, recall=1.0)
    after = filter_neighbors(before, keep, mutual)
    pairs = {(i, int(j)): s for i in range(30) for j, s in zip(before.indices[i], before.similarities[i], strict=True)}
    least = np.quantile(before.similarities, 1 - keep)
    expected = {(i, j) for (i, j), s in pairs.items() if (keep >= 1 or s >= least) and (not mutual or (j, i) in pairs)}
    found = {(i, int(j)) for i in range(30) for j in after.indices[i] if j != i}
    assert found == expected
    for i in range(30):
        places = after.indices[i].tolist()
        assert (i in places) == (places == [i] * 4)  # itself only where nobody stays
        counts = [places.count(j) for j in set(places)]
        assert max(counts) - min(counts) <= 1  # each of the others as often as can be
        for j, similarity in zip(places, after.similarities[i], strict=True):
            assert similarity == (1.0 if j == i else pairs[i, j])


def test_turnover_is_the_share_of_new_neighbors_whatever_their_order() -> None:
    before, after = np.array([[1, 2], [3, 4]]), np.array([[2, 1], [4, 9]])
    assert turnover(before, after) == pytest.approx(1 / 4)
    assert turnover(before, before) == 0.0


def test_turnover_of_rows_filled_with_what_stays_is_a_share() -> None:
    before = np.array([[1, 1, 2], [1, 1, 1], [0, 0, 0]])
    after = np.array([[1, 1, 1], [0, 2, 0], [2, 2, 2]])  # the last image has lost its neighbours
    assert turnover(before, after) == pytest.approx(3 / 6)
    assert turnover(after, after) == 0.0


def test_unreadable_images_are_nobody_s_neighbor_and_their_own() -> None:
    features = torch.tensor([[1.0, 0.1], [0.0, 0.0], [1.0, 0.2], [1.0, 0.3]])
    omega = search_omega(features, torch.tensor([True, False, True, True]), k=2, epoch=3, recall=1.0)
    assert omega.indices[1].tolist() == [1, 1]
    assert 1 not in omega.indices[[0, 2, 3]]
    assert omega.indices[0].tolist() == [2, 3]


def test_more_neighbors_than_readable_images_is_an_error_that_names_the_key() -> None:
    with pytest.raises(CsmlError, match=r"neighbors\.k: must be less than the 2 images"):
        search_omega(torch.rand(3, 2), torch.tensor([True, False, True]), k=2, epoch=0, recall=1.0)


def test_saved_omega_can_be_read_with_numpy(tmp_path: Path) -> None:
    omega = Omega(np.array([[1], [0]]), np.array([[0.5], [0.5]], np.float32), epoch=4)
    save_omega(tmp_path / "deep" / "omega.npz", omega)
    with np.load(tmp_path / "deep" / "omega.npz") as saved:
        assert saved["indices"].tolist() == [[1], [0]]
        assert int(saved["epoch"]) == 4
