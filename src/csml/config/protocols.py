"""Settings of the evaluation protocols: `csml knn` and `csml linear`."""

from dataclasses import dataclass

from csml.config.fields import Settings, bounded, common, each, interval, subset
from csml.config.images import ImagesConfig
from csml.config.network import STAGES
from csml.config.optimizer import MAX_EPOCHS, MAX_LR
from csml.config.run import MAX_BATCH, OF_THE_RUN, SEEDS, CheckpointConfig, HardwareConfig, MonitorConfig
from csml.config.sources import Sources


@dataclass(frozen=True)
class KnnConfig(Settings):
    """Settings of `csml knn`."""

    default_texts = OF_THE_RUN

    data: Sources = common(Sources("synthetic"))
    """Labelled images; by default the data of the run."""
    k: tuple[int, ...] = common(each((20, 200), low=1, limit=10**6))
    """Numbers of nearest neighbours that vote."""
    temperature: float = bounded(0.07, above=0, limit=1e3)
    """Temperature of the vote: a neighbour has the weight exp(cosine / temperature)."""
    stage: int = common(bounded(4, low=STAGES[0], high=STAGES[-1]))
    """Stage whose pooled features are compared."""
    baselines: bool = common(True)
    """Also evaluate the baselines: largest class, raw pixels, untrained network, starting weights. They are stored in
    RUN/baselines.json; if there are more than 20,000 images, a fixed sample is used."""
    output: str | None = common(None)
    """Result file; by default RUN/knn.json, knn.json next to a weight file, or ./knn-NAME.json for weights by name."""
    images: ImagesConfig = ImagesConfig()
    hardware: HardwareConfig = HardwareConfig()


@dataclass(frozen=True)
class LinearConfig(Settings):
    """Settings of `csml linear`."""

    default_texts = OF_THE_RUN

    data: Sources = common(Sources("synthetic"))
    """Labelled images; by default the data of the run."""
    stages: tuple[int, ...] = common(subset((4,), STAGES))
    """Stages whose pooled features are evaluated, each with its own classifier."""
    augment: bool = common(True)
    """Train on random crops and flips, the full protocol. If off: on features of centre crops, which are computed only
    once; much faster."""
    epochs: int = common(bounded(100, low=1, limit=MAX_EPOCHS))
    """Passes over the training set."""
    batch_size: int = common(bounded(256, low=1, limit=MAX_BATCH))
    """Images per step."""
    lr: float = common(bounded(30.0, above=0, limit=MAX_LR))
    """Learning rate. Lower it if the accuracy fluctuates. Use 0.3 for the features of small networks."""
    milestones: tuple[int, ...] = each((60, 80), low=1, limit=MAX_EPOCHS, empty=True)
    """Epochs after which the learning rate is multiplied by 0.1."""
    momentum: float = bounded(0.9, low=0, below=1)
    """Momentum of SGD."""
    weight_decay: float = bounded(0.0, low=0, limit=1e3)
    """Weight decay."""
    crop_scale: tuple[float, float] = interval((0.08, 1.0), above=0, high=1)
    """Share of the image area that a random crop keeps."""
    seed: int = common(bounded(0, low=0, limit=SEEDS - 1))
    """Random seed of the initial classifiers and of the crops."""
    baselines: bool = True
    """Also evaluate the baselines: the largest class and, if augment is off, an untrained network and the starting
    weights. `csml knn` also compares with raw pixels."""
    output: str | None = common(None)
    """Result file; by default RUN/linear.json, linear.json next to a weight file, or ./linear-NAME.json for weights by
    name."""
    images: ImagesConfig = ImagesConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    monitor: MonitorConfig = MonitorConfig()
    hardware: HardwareConfig = HardwareConfig()
