"""Settings of the commands that train classifiers: `csml supervised`, `finetune` and `mine`."""

from dataclasses import dataclass

from csml.config.fields import bounded
from csml.config.images import AugmentationConfig
from csml.config.network import BackboneConfig
from csml.config.optimizer import MAX_EPOCHS, MAX_LR, OptimizerConfig
from csml.config.run import MAX_BATCH, TrainingConfig


@dataclass(frozen=True)
class ClassifierConfig(TrainingConfig):
    """Settings of every command that trains a classifier."""

    epochs: int = bounded(90, low=1, limit=MAX_EPOCHS)
    """Passes over the labelled images."""
    batch_size: int = bounded(256, low=2, limit=MAX_BATCH)
    """Images per step; all images if there are fewer."""
    augmentation: AugmentationConfig = AugmentationConfig(crop_scale=(0.08, 1.0), jitter=0.0, gray=0.0, blur=0.0)
    model: BackboneConfig = BackboneConfig()


@dataclass(frozen=True)
class SupervisedConfig(ClassifierConfig):
    """Settings of `csml supervised`; the defaults are those of torchvision's ResNets."""

    labels: str | None = None
    """A CSV or JSON-lines file with the paths and labels of some of the images, to use instead of folder names."""
    fraction: float | None = bounded(None, above=0, high=1)
    """Share of the labels of each class to train on, at least one label per class; chosen by the seed and written to
    labels.csv."""
    list: str | None = None
    """A file with the names of the images to train on, one per line, such as the common 1 % and 10 % lists of
    ImageNet."""
    holdout: float = bounded(0.2, low=0, below=1)
    """Share of the labels in --labels to hold out for testing, if the data has no test images of its own. 0: none."""
    optimizer: OptimizerConfig = OptimizerConfig(lr_per_256=0.1)


@dataclass(frozen=True)
class FinetuneConfig(SupervisedConfig):
    """Settings of `csml finetune`; the defaults are the paper's."""

    weights: str | None = None
    """Weights to start from: a run directory or a weight file, from csml or another trainer. The word --weights may be
    omitted."""
    epochs: int = bounded(60, low=1, limit=MAX_EPOCHS)
    """Passes over the labelled images."""
    head_lr_per_256: float = bounded(10.0, above=0, limit=MAX_LR)
    """Learning rate of the classifier; the backbone uses optimizer.lr_per_256."""
    optimizer: OptimizerConfig = OptimizerConfig(lr_per_256=1e-4, weight_decay=0.0)


@dataclass(frozen=True)
class MineConfig(ClassifierConfig):
    """Settings of `csml mine`; the defaults are the paper's. Labels and test images are those of the fine-tuned run."""

    weights: str | None = None
    """The fine-tuned run to start from. The word --weights may be omitted."""
    epochs: int = bounded(90, low=1, limit=MAX_EPOCHS)
    """Passes over the true and the pseudo-labels in each round."""
    head_lr_per_256: float = bounded(0.01, above=0, limit=MAX_LR)
    """Learning rate of the classifier; the backbone uses optimizer.lr_per_256."""
    optimizer: OptimizerConfig = OptimizerConfig(
        lr_per_256=1e-4, weight_decay=1e-4, schedule="steps", milestones=(30, 60)
    )
    max_entropy: float = bounded(1.0, above=0, limit=1e3)
    """Largest entropy, in nats, of a prediction that becomes a pseudo-label. Lower it if many pseudo-labels are
    wrong."""
    rounds: int = bounded(1, low=1, limit=10_000)
    """Number of rounds of prediction and training."""
