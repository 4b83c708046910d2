"""Accuracy, confusions and entropies by hand."""

import math

import pytest
import torch

from csml.evaluation.accuracy import accuracy, confusion, entropy


def test_entropy_confusion_and_accuracy_by_hand() -> None:
    shares = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.9, 0.1]], dtype=torch.float64)
    expected = [0.0, math.log(2), -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))]
    assert entropy(shares).tolist() == pytest.approx(expected)
    scores = torch.tensor([[3.0, 1, 2], [0, 1, 5], [1, 2, 0], [9, 0, 0]])
    labels = torch.tensor([0, 1, 1, 2])
    assert confusion(scores, labels, 3) == [[1, 0, 0], [0, 1, 1], [1, 0, 0]]
    result = accuracy(scores, labels, ("a", "b", "c"))
    assert result["top1"] == 0.5
    assert result["per_class"] == {"a": 1.0, "b": 0.5, "c": 0.0}
