"""Plain BatchNorm lets a query recognise its batch; split BatchNorm with shuffled keys does not.

docs/method.md#batchnorm
"""

import pytest
import torch

from csml.config import ContrastConfig
from csml.evaluation.knn import knn_predict
from csml.losses import info_nce
from csml.methods.contrast import MomentumContrast
from csml.models import Encoder, FeatureNet, build_backbone

BATCH, OTHER_BATCHES, STEPS, TAU = 16, 4, 300, 0.1
CHANCE = 1 / (1 + BATCH * OTHER_BATCHES)


def squares(count: int) -> torch.Tensor:
    """A square of random colour on black. What BatchNorm makes of the black tells the statistics of the batch."""
    generator = torch.Generator().manual_seed(1)
    colour = torch.randn(count, 3, 1, 1, generator=generator) * torch.rand(count, 1, 1, 1, generator=generator) * 2
    images = torch.zeros(count, 3, 16, 16)
    images[:, :, 4:12, 4:12] = colour
    return images


def cheat(splits: int) -> tuple[float, float, float]:
    """Train where nothing but the batch can be recognised: the positive of a query is *another* image of its batch,
    the negatives are images of other batches, encoded at the same moment.

    Returns the contrastive accuracy over the second half, and the 20-NN of the colours before and after.
    """
    images = squares(1024)
    labels = (images[:, :, 8, 8] > 0).long() @ torch.tensor([1, 2, 4])  # (1024,): the octant of the colour
    torch.manual_seed(0)
    encoder = Encoder(build_backbone("tiny"), (4,), dim=64, hidden=None)
    method = MomentumContrast(encoder, 64, ContrastConfig(bn_splits=splits, momentum=0.9))
    optimizer = torch.optim.SGD(method.query_encoder.parameters(), lr=0.03, momentum=0.9)
    generator = torch.Generator().manual_seed(0)

    def knn() -> float:
        with torch.no_grad():
            features = FeatureNet(method.query_encoder.backbone.eval())(images)[4]
        method.train()
        predicted = knn_predict(features[:800], labels[:800], features[800:], 20)
        return float((predicted == labels[800:]).float().mean())

    before, right = knn(), []
    for _ in range(STEPS):
        batches = torch.randperm(len(images), generator=generator).split(BATCH)
        negatives = [method.encode_keys(images[ids], generator, len(ids))[4] for ids in batches[1 : 1 + OTHER_BATCHES]]
        anchors = images[batches[0]]
        keys = method.encode_keys(anchors.roll(1, dims=0), generator, len(anchors))[4]
        query = method.query_encoder(anchors)[4]
        result = info_nce(query, keys[None], torch.ones(1), torch.cat(negatives), TAU)
        result.loss.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        method.follow(0.9)
        right.append((result.positive[0] > result.hardest).float().mean().item())
    return sum(right[STEPS // 2 :]) / (STEPS - STEPS // 2), before, knn()


def test_with_plain_batchnorm_the_contrastive_accuracy_rises_while_the_knn_does_not() -> None:
    accuracy, before, after = cheat(splits=1)
    assert accuracy > 2.5 * CHANCE
    assert after <= before + 0.02


def test_with_split_batchnorm_it_stays_at_chance() -> None:
    accuracy, _, _ = cheat(splits=8)
    assert accuracy == pytest.approx(CHANCE, abs=0.5 * CHANCE)
