"""Settings of the commands that train classifiers: `csml supervised`, `finetune` and `mine`."""

from dataclasses import dataclass
from typing import Literal

from csml.config.fields import bounded, common, require
from csml.config.images import AugmentationConfig
from csml.config.network import BackboneConfig
from csml.config.optimizer import MAX_EPOCHS, MAX_LR, OptimizerConfig
from csml.config.run import MAX_BATCH, NEEDS_DATA, OF_THE_RUN, LabelTestConfig, TrainingConfig


@dataclass(frozen=True)
class ClassifierConfig(TrainingConfig):
    """Settings of every command that trains a classifier."""

    epochs: int = common(bounded(90, low=1, limit=MAX_EPOCHS))
    """Passes over the labelled images."""
    batch_size: int = common(bounded(256, low=2, limit=MAX_BATCH))
    """Images per step; all images if there are fewer."""
    augmentation: AugmentationConfig = AugmentationConfig(crop_scale=(0.08, 1.0), jitter=0.0, gray=0.0, blur=0.0)
    model: BackboneConfig = BackboneConfig()
    monitor: LabelTestConfig = LabelTestConfig()


@dataclass(frozen=True)
class SupervisedConfig(ClassifierConfig):
    """Settings of `csml supervised`; the defaults are those of torchvision's ResNets."""

    default_texts = NEEDS_DATA

    labels: str | None = common(None)
    """A CSV or JSON-lines file with the paths and labels of some of the images, to use instead of folder names."""
    fraction: float | None = common(bounded(None, above=0, high=1))
    """Share of the labels of each class to train on, at least one label per class; chosen by the seed and written to
    labels.csv."""
    per_class: int | None = common(bounded(None, low=1, limit=10**9))
    """Number of labels of each class to train on, all labels of a class that has fewer; chosen in the same way as for
    --fraction."""
    list: str | None = None
    """A file with the names of the images to train on, one per line, such as the common 1 % and 10 % lists of
    ImageNet."""
    holdout: float | None = bounded(None, low=0, below=1)
    """Share of the labels in --labels to hold out for testing, if the data has no test images of its own; 0: none. By
    default a fifth; but none if cross-validation estimates the accuracy and there are fewer than 100 labels, or fewer
    than 5 per class would be left."""
    optimizer: OptimizerConfig = OptimizerConfig(lr_per_256=0.1)

    def check(self) -> None:
        require(self.per_class is None or self.fraction is None, "per_class", "give either this or fraction, not both")


@dataclass(frozen=True)
class FinetuneConfig(SupervisedConfig):
    """Settings of `csml finetune`; those of --how paper are the paper's."""

    default_texts = OF_THE_RUN

    weights: str | None = None
    """Weights to start from: a run directory or a weight file, from csml or another trainer. The word --weights may be
    omitted."""
    how: Literal["auto", "spread", "logistic", "prototypes", "norms", "last-stage", "all", "paper"] = common("auto")
    """How to learn from the labels. spread: labels spread to the nearest neighbours among the unlabelled images,
    and a logistic regression learns from all of them. logistic: logistic regression on the features of the unchanged
    network. prototypes: the nearest class mean. norms, last-stage, all: logistic regression, then training of the
    linear layer and of the normalisation layers, the last stage or all layers. All of these give calibrated
    probabilities. auto: the best of them in cross-validation on the labels. paper: all layers from a random linear
    layer, not calibrated."""
    tune_from: int = bounded(20, low=2, limit=10**9)
    """Average number of labels per class from which --how auto also tries norms, last-stage and all. Each of them takes
    five trainings."""
    epochs: int = common(bounded(60, low=1, limit=MAX_EPOCHS))
    """Passes over the labelled images, if layers of the network are trained."""
    tuning_lr_per_256: float = bounded(0.02, above=0, limit=MAX_LR)
    """Learning rate of --how norms, last-stage and all."""
    head_lr_per_256: float = bounded(10.0, above=0, limit=MAX_LR)
    """Learning rate of the linear layer of --how paper; its backbone uses optimizer.lr_per_256."""
    optimizer: OptimizerConfig = OptimizerConfig(lr_per_256=1e-4, weight_decay=0.0)


@dataclass(frozen=True)
class MineConfig(ClassifierConfig):
    """Settings of `csml mine`; the defaults are the paper's. Labels and test images are those of the fine-tuned run."""

    default_texts = OF_THE_RUN

    weights: str | None = None
    """The fine-tuned run to start from. The word --weights may be omitted."""
    epochs: int = common(bounded(90, low=1, limit=MAX_EPOCHS))
    """Passes over the true and the pseudo-labels in each round."""
    head_lr_per_256: float = bounded(0.01, above=0, limit=MAX_LR)
    """Learning rate of the classifier; the backbone uses optimizer.lr_per_256."""
    optimizer: OptimizerConfig = OptimizerConfig(
        lr_per_256=1e-4, weight_decay=1e-4, schedule="steps", milestones=(30, 60)
    )
    max_entropy: float = common(bounded(1.0, above=0, limit=1e3))
    """Largest entropy, in nats, of a prediction that becomes a pseudo-label. Lower it if many pseudo-labels are
    wrong."""
    rounds: int = common(bounded(1, low=1, limit=10_000))
    """Number of rounds of prediction and training."""
