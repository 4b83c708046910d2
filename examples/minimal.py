"""CsMl in 150 lines: what `csml pretrain --preset demo` does, without its loop, log and checkpoints.

    python examples/minimal.py

From the same seed it computes the same weights as the command, to the last bit (in float32 on one thread; the order of
sums depends on threads). docs/method.md has the equations.
"""

import copy
import math

import torch
from torch import Tensor

from csml.api.pretraining import pretrain_config
from csml.config import HardwareConfig, PretrainConfig
from csml.data.images import Images
from csml.data.loading import fabric_for, view_batches
from csml.data.open import open_data
from csml.data.sampling import epoch_batches, generator_for, plan_batch
from csml.evaluation import knn_predict
from csml.evaluation.features import Features, extract_features
from csml.losses import multi_positive_info_nce
from csml.methods.queue import KeyQueue
from csml.models.backbones import build_backbone, normalization
from csml.models.encoder import Encoder
from csml.models.split_batchnorm import split_batchnorm
from csml.search.omega import Omega, filter_neighbors, search_omega
from csml.training.schedule import learning_rate
from csml.views import cutmix
from csml.views.augment import augment, draw_params
from csml.views.recipe import crop_specs

FLOAT32 = HardwareConfig(precision="32-true", threads=1)


def train(config: PretrainConfig, images: Images) -> tuple[Encoder, list[float]]:
    """The trained query encoder, and the loss of every step."""
    torch.manual_seed(config.seed)
    model, contrast, settings = config.model, config.contrast, config.neighbors
    backbone = build_backbone(model.backbone)
    f_q = Encoder(
        backbone, model.stages, model.dim, model.hidden, model.narrowing
    )  # a head at each of the stages 2, 3, 4
    split_batchnorm(f_q, contrast.bn_splits)  # sub-batches, so that statistics do not give the key away
    f_k = copy.deepcopy(f_q).requires_grad_(False)
    queue = KeyQueue(f_q.dims, contrast.queue_length)
    for encoder in (f_q, f_k):
        encoder.to(memory_format=torch.channels_last)
    peak = config.optimizer.lr_per_256 * config.batch_size / 256
    decay = {"momentum": config.optimizer.momentum, "weight_decay": config.optimizer.weight_decay}
    optimizer = torch.optim.SGD(f_q.parameters(), lr=peak, fused=True, **decay)

    omega: Omega | None = None  # the neighbour set Ω of every image: until it is searched, x_p is another view of x_a
    losses: list[float] = []
    per_epoch = len(epoch_batches(len(images), config.batch_size, config.seed, 0))
    for epoch in range(config.epochs):
        since = epoch - settings.warmup_epochs
        if since >= 0 and since % settings.refresh_every == 0:
            found = features_of(f_q, images, config, halves=True)
            omega = filter_neighbors(
                search_omega(found.by_stage[4], found.good, settings.k, epoch, settings.recall), settings.keep, False
            )
        for step, batch in enumerate(batches(config, images, omega, epoch)):
            done = epoch * per_epoch + step
            for group in optimizer.param_groups:
                warmup = config.optimizer.warmup_epochs * per_epoch
                group["lr"] = learning_rate(done, config.epochs * per_epoch, peak, warmup)
            generator = generator_for(config.seed, epoch, step, 1)

            # Views: two queries and two keys, of the anchor and of its neighbour, and the mixture of the queries.
            by = normalization(backbone)
            view = {
                name: augment(crop, draw_params(len(crop), config.augmentation, generator), 2.0, by).contiguous(
                    memory_format=torch.channels_last
                )
                for name, crop in batch.crops.items()
            }
            mixed, lam = cutmix(view["query_a"], view["query_p"], config.views.mix_alpha, generator)  # Eq. 3
            half = torch.tensor([0.5, 0.5])
            queries = {"a": (view["query_a"], half), "p": (view["query_p"], half)}
            queries["mixed"] = mixed, torch.stack([lam, 1 - lam])

            # Keys: the key encoder follows the query encoder, and sees its batch in another order.
            with torch.no_grad():
                for ours, theirs in zip(f_k.parameters(), f_q.parameters(), strict=True):
                    ours.lerp_(theirs, 1 - contrast.momentum)
                keys = [shuffled(f_k, view[f"key_{side}"], generator) for side in ("a", "p")]

            # Loss: every query is pulled to both keys, at every level, and pushed from the queue (Eq. 2, 4, 5, 7).
            terms = []
            for images_of_query, weights in queries.values():
                embedded = f_q(images_of_query)
                for stage in f_q.stages:
                    positives = torch.stack([key[stage] for key in keys])  # (2, B, D)
                    negatives = queue.keys(stage)  # (N, D)
                    loss = multi_positive_info_nce(embedded[stage], positives, weights, negatives, contrast.temperature)
                    terms.append(loss.mean())
            loss = torch.stack(terms).sum() / len(queries)
            loss.backward()
            queue.enqueue(keys[0], batch.anchors)  # after backward, which needs the old keys
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
        mean = sum(losses[-per_epoch:]) / per_epoch
        print(f"epoch {epoch + 1}: loss {mean:.3f}, chance {len(f_q.stages) * math.log(1 + queue.length):.2f}")
    return f_q, losses


def batches(config: PretrainConfig, images: Images, omega: Omega | None, epoch: int):
    """The crops of every batch of an epoch; the random numbers depend on seed, epoch and step alone."""
    specs = crop_specs(config)
    order = epoch_batches(len(images), config.batch_size, config.seed, epoch)
    near = None if omega is None else omega.indices
    plans = (
        plan_batch(ids, near, len(specs), generator_for(config.seed, epoch, step, 0)) for step, ids in enumerate(order)
    )
    return view_batches(images, plans, specs, workers=0)


def shuffled(encoder: Encoder, images: Tensor, generator: torch.Generator) -> dict[int, Tensor]:
    """Embeddings `{stage: (B, D)}`, computed in a random order and put back."""
    order = torch.randperm(len(images), generator=generator)
    return {stage: keys[order.argsort()] for stage, keys in encoder(images[order]).items()}


def features_of(encoder: Encoder, images: Images, config: PretrainConfig, halves: bool = False) -> Features:
    """Pooled features of stage 4."""
    fabric = fabric_for(images, 0, FLOAT32)
    return extract_features(encoder.backbone, images, config.images, fabric, unit_halves=halves)


if __name__ == "__main__":
    torch.set_num_threads(1)
    config = pretrain_config("synthetic", preset="demo")
    data = open_data(config.data, config.images)
    encoder, _ = train(config, data.train)
    (train_features, labels), (test_features, truth) = (
        features_of(encoder, images, config).readable(4) for images in (data.labeled, data.val)
    )
    right = knn_predict(train_features, labels, test_features, 20) == truth
    print(f"20-NN {right.double().mean():.1%}")
