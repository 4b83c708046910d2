"""Settings of momentum contrast."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from csml.config.fields import bounded, require, share
from csml.config.frameworks.base import FrameworkConfig
from csml.config.network import STAGES

if TYPE_CHECKING:
    from csml.config.pretraining import PretrainConfig


@dataclass(frozen=True)
class ContrastConfig(FrameworkConfig):
    """Momentum contrast (MoCo): a momentum encoder and a queue of negatives."""

    title: ClassVar[str] = "MoCo"
    single: ClassVar[str] = "moco-v2"
    cross: ClassVar[str] = "csml"
    missing_elsewhere: ClassVar[str] = "no queue, no negatives and no split BatchNorm"

    memory: bool = False
    """Keep the newest key of every image instead of a queue. All of them are negatives, and the keys of an anchor's
    neighbour set Ω are positives, all at once and without views of the neighbours (docs/method.md#memory). For up to
    about 100 000 images; an image takes 4·D bytes."""
    neighbor_share: float = share(0.7)
    """With memory: share of the loss that pulls an anchor to the keys of its neighbours; the rest pulls it to its own
    key. It can be high if most neighbours are correct."""
    temperature: float = bounded(0.2, above=0, limit=1e3)
    """Temperature τ of the softmax. Too low: the loss is near 0 and features only tell instances apart. Too high: the
    loss stays near chance."""
    momentum: float = bounded(0.999, low=0, below=1)
    """Momentum m of the key encoder. Use 0.99 for short runs (less than about 10 000 steps)."""
    queue_length: int | None = bounded(None, low=1, limit=2**26)
    """Number N of negatives per level. By default an eighth of the data rounded down to a power of two, from 256 to
    65 536, and at most half the data. A queue as long as the data set is too long: an image's own past key becomes
    its negative."""
    empty_queue: bool = False
    """Start with an empty queue instead of random vectors. Random vectors repel nothing: until they are replaced, the
    loss only pulls embeddings together, which ruins good weights within a few steps."""
    loss_chunk: int = bounded(16_384, low=1, limit=2**26)
    """Number of negatives that the loss handles at once. Lower it if a long queue runs out of memory; the result is the
    same."""
    enqueue: Literal["anchor", "all"] = "anchor"
    """Keys that enter the queue: those of the anchors only, or those of the neighbours as well."""
    mask_known: bool = False
    """Ignore negatives that are known to come from the anchor itself or from its neighbour set Ω."""
    bn_splits: int = bounded(8, low=1, limit=65_536)
    """Number of sub-batches with separate BatchNorm statistics, as if on that many devices. With 1 the network
    cheats: the contrastive accuracy rises but the kNN accuracy does not."""
    reduction: Literal["mean", "sum"] = "mean"
    """Reduction over the query groups q_a, q_p and q̂: mean (authors' code; fits the paper's learning rate) or sum (the
    paper's formula)."""

    @property
    def remembers(self) -> bool:
        return self.memory

    def check_run(self, config: "PretrainConfig") -> None:
        super().check_run(config)
        require(
            not self.memory or config.model.stages == (STAGES[-1],),
            "contrast.memory",
            "it holds keys of the last stage only; give --model.stages [4]",
        )

    @classmethod
    def twins(cls) -> dict[str, tuple[str, ...]]:
        return {cls.single: ("single",)}
