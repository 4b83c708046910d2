"""The vote by hand, and the command."""

import json
import math
from pathlib import Path

import pytest
import torch
import torchvision
from hypothesis import given
from hypothesis import strategies as st

from conftest import csml
from csml.evaluation import knn_predict


def test_the_vote_is_weighted_by_similarity() -> None:
    """One very near neighbour of class 0 against two farther ones of class 1."""
    angles = torch.tensor([0.1, 0.5, 0.5])
    train = torch.stack([angles.cos(), angles.sin()], dim=1)
    labels = torch.tensor([0, 1, 1])
    query = torch.tensor([[1.0, 0.0]])
    near, far = math.exp(math.cos(0.1) / 0.07), 2 * math.exp(math.cos(0.5) / 0.07)
    assert near > far
    assert knn_predict(train, labels, query, k=3).tolist() == [0]
    assert knn_predict(train, labels, query, k=3, temperature=10.0).tolist() == [1]  # nearly one vote each


@given(seed=st.integers(0, 500), k=st.integers(1, 30))
def test_equal_to_the_vote_counted_one_by_one(seed: int, k: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    train, labels = torch.randn(30, 5, generator=generator), torch.randint(0, 4, (30,), generator=generator)
    queries = torch.randn(6, 5, generator=generator)
    predicted = knn_predict(train, labels, queries, k)
    for query, ours in zip(queries, predicted.tolist(), strict=True):
        similarity = torch.nn.functional.cosine_similarity(query[None].double(), train.double())
        votes = [0.0] * 4
        for i in similarity.argsort(descending=True)[:k].tolist():
            votes[int(labels[i])] += math.exp(similarity[i] / 0.07)
        assert votes[ours] == pytest.approx(max(votes), rel=1e-3)


def test_the_command_writes_its_result_into_the_run(small_run: Path) -> None:
    done = csml("knn", str(small_run))
    assert done.returncode == 0, done.stderr
    result = json.loads((small_run / "knn.json").read_text())
    assert set(result["accuracy"]) == {"20", "200"}
    assert result["tested"] == 50
    assert f"20-NN  {result['accuracy']['20']:.1%}" in done.stdout


@pytest.mark.parametrize("command", ["knn", "linear", "embed"])
def test_weights_that_know_no_images_need_some(command: str) -> None:
    done = csml(command, "random:nano")
    assert done.returncode == 2
    assert done.stderr == "csml: error: data: random:nano does not say which images it is for; give --data FOLDER\n"


@pytest.mark.parametrize("layout", ["torchvision", "moco"])
def test_other_people_s_checkpoints_are_judged_too(tmp_path: Path, layout: str) -> None:
    state = torchvision.models.resnet18(weights=None).state_dict()
    file = tmp_path / "other.pth"
    if layout == "moco":
        state = {"state_dict": {f"module.encoder_q.{k}": v for k, v in state.items()}, "arch": "resnet18", "epoch": 3}
    torch.save(state, file)
    words = [
        "--data",
        "synthetic",
        "--images.size",
        "32",
        "--images.synthetic_train",
        "300",
        "--images.synthetic_val",
        "100",
    ]
    done = csml("knn", str(file), *words)
    assert done.returncode == 0, done.stderr
    assert 0 <= json.loads((tmp_path / "knn.json").read_text())["accuracy"]["20"] <= 1


def test_data_without_labels_cannot_judge(small_run: Path, tmp_path: Path) -> None:
    from PIL import Image

    Image.new("RGB", (32, 32)).save(tmp_path / "1.png")
    done = csml("knn", str(small_run), "--data", str(tmp_path))
    assert done.returncode == 2
    assert "no labels" in done.stderr
