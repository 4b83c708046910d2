"""Settings of the protocols."""

from dataclasses import dataclass, field

from csml.config.schema import HardwareConfig, ImagesConfig


@dataclass
class KnnConfig:
    """Settings of `csml knn`."""

    data: str = "synthetic"
    """Labelled images; by default those of the run."""
    k: tuple[int, ...] = (20, 200)
    """Numbers of neighbours that vote."""
    temperature: float = 0.07
    """A neighbour weighs exp(cosine / temperature)."""
    stage: int = 4
    """Stage whose pooled features are compared."""
    output: str | None = None
    """Result file; by default RUN/knn.json, or knn.json beside a weight file."""
    images: ImagesConfig = field(default_factory=ImagesConfig)
    hardware: HardwareConfig = field(default_factory=HardwareConfig)


@dataclass
class LinearConfig:
    """Settings of `csml linear`."""

    data: str = "synthetic"
    """Labelled images; by default those of the run."""
    stages: tuple[int, ...] = (4,)
    """Stages whose pooled features are judged, each by a classifier of its own."""
    augment: bool = True
    """Random crops and flips, the full protocol. Off: features of centre crops, computed once; far faster."""
    epochs: int = 100
    """Passes over the training set."""
    batch_size: int = 256
    """Images per step."""
    lr: float = 30.0
    """Learning rate. If the accuracy jumps about, lower it: features of small networks want 0.3."""
    milestones: tuple[int, ...] = (60, 80)
    """Epochs at which the learning rate is multiplied by 0.1."""
    momentum: float = 0.9
    """SGD momentum."""
    weight_decay: float = 0.0
    """Weight decay."""
    crop_scale: tuple[float, float] = (0.08, 1.0)
    """Share of the area that a random crop keeps."""
    seed: int = 0
    """Of the classifier's initialisation and of the crops."""
    output: str | None = None
    """Result file; by default RUN/linear.json, or linear.json beside a weight file."""
    images: ImagesConfig = field(default_factory=ImagesConfig)
    hardware: HardwareConfig = field(default_factory=HardwareConfig)
