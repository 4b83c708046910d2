"""Settings of views: which images become the queries and keys of one anchor."""

from dataclasses import dataclass
from typing import Literal

from csml.config.fields import Settings, bounded, common, interval, require, share
from csml.config.images import MAX_SIDE


@dataclass(frozen=True)
class ViewsConfig(Settings):
    """Which images become the queries and keys of one anchor."""

    cross_sample: bool = True
    """Use a neighbour x_p of the anchor as a second positive. If off (with mix `none` and stages [4]): MoCo v2."""
    positives: int = bounded(1, low=1, limit=1024)
    """Number P of neighbours drawn for each anchor in each epoch. Every query is pulled to all P + 1 keys."""
    neighbor_views: bool = True
    """Draw a neighbour x_p for each anchor and encode views of it. Off, with contrast.memory: the positives are
    the neighbours' stored keys from when they were anchors themselves, which takes no time."""
    neighbor_queries: bool = True
    """Use a view of each neighbour as a query as well (q_p). Without it a step takes a third less time, and x_p is only
    a key and a part of the mixture; from good weights that cost no accuracy."""
    mix: Literal["cutmix", "mixup", "none"] = "cutmix"
    """Add a query that mixes the query views of the anchor and its (first) neighbour. cutmix pastes a box of one view
    into the other; mixup blends the two."""
    mix_alpha: float = bounded(1.0, above=0, limit=1e6)
    """α of the distribution Beta(α, α) of the mixing ratio (authors' code: 2)."""
    mix_per_sample: bool = False
    """Draw a CutMix box, or a MixUp ratio, for each sample instead of one for the whole batch."""
    small_crops: int = bounded(0, low=0, limit=256)
    """Multi-crop: number V of small crops of the anchor, and as many of its neighbour, used only as queries. With 4,
    an epoch takes more than twice as long; on small data they improved runs of thirty epochs but not of ten
    (docs/results.md)."""
    small_size: int | None = bounded(None, low=8, limit=MAX_SIDE, unit="pixels")
    """Side of the small crops in pixels. By default 3/7 of images.size, rounded to a multiple of 8: 96 for 224."""
    small_scale: tuple[float, float] = interval((0.05, 0.14), above=0, high=1)
    """Share of the image area that a small crop keeps. Raise it for images of about 32 pixels."""
    symmetric: bool = False
    """Also swap query and key views: every view is a query once and a key once (BYOL, SimSiam)."""

    def check(self) -> None:
        require(
            (self.cross_sample and self.neighbor_views) or self.mix == "none",
            "mix",
            "mixing needs a second image; give --views.cross_sample true (with --neighbors.k 0 it is the anchor "
            "itself) and --views.neighbor_views true, or --views.mix none",
        )
        require(
            self.positives == 1 or (self.cross_sample and self.neighbor_views),
            "positives",
            "more than 1 need --views.cross_sample true and --views.neighbor_views true",
        )


@dataclass(frozen=True)
class NeighborsConfig(Settings):
    """The neighbour set Ω: the nearest neighbours of an anchor, from which x_p is drawn."""

    k: int = common(bounded(10, low=0, limit=65_536))
    """Number of neighbours per anchor (authors' code: 5). 0: x_p is always another view of the anchor itself."""
    refresh_every: int = bounded(5, low=1, limit=1_000_000)
    """Epochs between two searches."""
    warmup_epochs: int = bounded(10, low=0, limit=1_000_000)
    """Epochs before the first search; until then x_p is another view of the anchor. Raise it if the logged purity or
    the kNN accuracy is still low at the first search: while the loss between an image's own views still falls fast,
    even correct neighbours slow it down."""
    keep: float = bounded(1.0, above=0, high=1)
    """Share of all pairs of image and neighbour to keep, the most similar ones. An image without any neighbour uses
    another view of itself. Lower it if the logged purity is below two thirds: wrong neighbours are harmful."""
    mutual: bool = False
    """Keep a neighbour only if the image is also among the neighbour's own k."""
    draw: Literal["uniform", "similar"] = "uniform"
    """How x_p is drawn from the neighbour set. similar: with a probability proportional to exp(cosine / 0.07)."""
    features: Literal["pass", "online", "start"] = "pass"
    """Features to search in. pass: pooled features of every image, from an extra pass over the data. online: the keys
    of the last epoch, at no cost, but computed from random crops and up to one epoch old. start: those of the
    starting weights; they are searched once, before the first epoch that uses neighbours."""
    size: int | None = bounded(None, low=8, limit=MAX_SIDE, unit="pixels")
    """Side of the images whose features are searched, at least and by default images.eval_size. Larger images
    give better neighbours, and with features `start` they are computed only once."""
    whiten: float = share(0.0)
    """How far the variance of the features is equalised over their directions before the search, from 0 (not at all) to
    1 (all directions count the same). 0.25 keeps a few strong directions, such as the background, from dominating the
    similarity."""
    encoder: Literal["query", "key"] = "query"
    """Encoder that computes the features of a pass (authors' code: key)."""
    recall: float = bounded(0.99, above=0, high=1)
    """Share of the true neighbours that the search must find if there are more than 16 384 images; measured on a
    sample and logged. 1: exact search in float32, several times slower."""

    def check(self) -> None:
        require(
            self.features != "online" or self.warmup_epochs >= 1,
            "features",
            "online needs an epoch of keys before the first search; give --neighbors.warmup_epochs 1 or more, or pass",
        )
