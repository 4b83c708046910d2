"""Every constant of the method as a config key. The defaults are the paper's; the docstrings are the command's help."""

from dataclasses import dataclass, field
from typing import Literal

NAMED = ("synthetic", "cifar10", "cifar100", "stl10")
"""Data that is asked for by name instead of by folder."""


@dataclass
class ImagesConfig:
    """How pictures are found and read."""

    size: int = 224
    """Side in pixels of the square crops the network sees."""
    eval_crop: float = 0.875
    """Share of the shorter side that the deterministic centre crop keeps (0.875 is 256 → 224; 1 for tiny pictures)."""
    labels: Literal["auto", "folders", "none"] = "auto"
    """Whether the names of the first-level folders are classes. auto: yes if all pictures are one folder deep."""
    max_failed: float = 0.05
    """Share of the files that may fail to decode before the run stops."""
    sample: int | None = None
    """Take only so many of the training pictures, always the same ones, evenly from all classes: for quick trials."""
    synthetic_train: int = 6000
    """Number of training pictures when data is `synthetic`."""
    synthetic_val: int = 1000
    """Number of validation pictures when data is `synthetic`."""
    synthetic_size: int | None = None
    """Side in pixels of the synthetic pictures; by default the size of the crops."""
    workers: int | None = None
    """Processes that decode pictures; by default none for data in memory, one where the CPU trains, else one per spare
    core. More than there are spare cores makes training slower."""


@dataclass
class AugmentationConfig:
    """MoCo v2's random augmentation of each view; every view draws its own."""

    crop_scale: tuple[float, float] | None = None
    """Share of the picture's area that a random crop keeps. By default [0.2, 1], with small crops [0.14, 1].
    Raise the lower end if objects are small and get lost."""
    crop_ratio: tuple[float, float] = (0.75, 4 / 3)
    """Aspect ratio of a random crop."""
    flip: float = 0.5
    """Probability of a horizontal flip. Set to 0 if left and right mean something (text, faces in profile)."""
    jitter: float = 0.8
    """Probability of colour jitter."""
    brightness: float = 0.4
    """Brightness is multiplied by a factor from [1 − this, 1 + this]."""
    contrast: float = 0.4
    """The same for contrast."""
    saturation: float = 0.4
    """The same for saturation."""
    hue: float = 0.1
    """Hue is shifted by up to this share of the colour circle. Lower it if colour tells your classes apart."""
    gray: float = 0.2
    """Probability of dropping colour."""
    blur: float = 0.5
    """Probability of a Gaussian blur. Lower it, or set to 0, for pictures of about 32 pixels."""
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    """Standard deviation of the blur in pixels, drawn uniformly."""
    solarize: float = 0.0
    """Probability of inverting the pixels above the middle grey."""
    key_blur: float | None = None
    """Probability of a blur in key views, if it differs (BYOL: 1 in queries, 0.1 in keys)."""
    key_solarize: float | None = None
    """Probability of inverting in key views, if it differs (BYOL: 0 in queries, 0.2 in keys)."""


@dataclass
class ViewsConfig:
    """Which images become queries and keys of one anchor."""

    cross_sample: bool = True
    """Pull an anchor to a neighbour x_p as well as to itself. Off, with mix `none` and stages [4], is MoCo v2."""
    positives: int = 1
    """P, neighbours drawn for each anchor at every visit. Every query is pulled to all P + 1 keys."""
    mix: Literal["cutmix", "mixup", "none"] = "cutmix"
    """One more query: a mixture of the query views of anchor and (first) neighbour. cutmix pastes a box of the one
    into the other, mixup blends them."""
    mix_alpha: float = 1.0
    """The mixing ratio is drawn from Beta(α, α) (authors' code: 2)."""
    mix_per_sample: bool = False
    """Each sample gets its own CutMix box, or ratio of MixUp, instead of one for the batch."""
    small_crops: int = 0
    """V, small crops of the anchor and as many of its neighbour: multi-crop. Queries only. 4 double the time of an
    epoch and more; on small data they paid over thirty epochs, not over ten (docs/results.md)."""
    small_size: int | None = None
    """Side in pixels of the small crops. By default 3/7 of images.size as a multiple of 8: 96 for 224."""
    small_scale: tuple[float, float] = (0.05, 0.14)
    """Share of the picture's area that a small crop keeps. Raise it for pictures of about 32 pixels."""
    symmetric: bool = False
    """Let query and key views change places as well: every view is a query once and a key once (BYOL)."""


@dataclass
class NeighborsConfig:
    """Ω, the set of nearest neighbours from which x_p is drawn."""

    k: int = 10
    """Neighbours per anchor (authors' code: 5). 0: x_p is always another view of the anchor itself."""
    refresh_every: int = 5
    """Epochs between two searches."""
    warmup_epochs: int = 10
    """Epochs before the first search; until then x_p is another view of the anchor.
    Raise it if the logged purity or the 20-NN is still low when the first search comes: while the loss of an image's
    own views still falls fast, even right neighbours hold it up."""
    keep: float = 1.0
    """Share of all pairs of an image and its neighbour that is kept, the most similar; an image left without any draws
    another view of itself. Lower it if the logged purity of Ω is below two thirds: wrong neighbours do harm."""
    mutual: bool = False
    """Keep a neighbour only if the image is among the neighbour's own k as well."""
    draw: Literal["uniform", "similar"] = "uniform"
    """How x_p is drawn from Ω. similar: the more similar the likelier, as exp(cosine / 0.07)."""
    features: Literal["pass", "online"] = "pass"
    """pass: pooled features of every image by an extra pass over the data. online: the keys that training has made
    during the last epoch, at no cost, but of random crops and up to an epoch old."""
    encoder: Literal["query", "key"] = "query"
    """The encoder that makes the features of a pass (authors' code: key)."""
    recall: float = 0.99
    """Share of the true neighbours that the search must find among more than 16 384 images; measured on a sample and
    logged. 1: exact, in float32, several times slower."""


@dataclass
class BackboneConfig:
    """The network."""

    backbone: str = "resnet50"
    """A torchvision ResNet by name, or `small`, `tiny` or `nano`: four stages of one block each, for
    small images on a CPU."""
    small_images: bool = False
    """3×3 first convolution and no max-pool, for pictures of about 32 pixels."""


@dataclass
class ModelConfig(BackboneConfig):
    """The network and its heads."""

    stages: tuple[int, ...] = (2, 3, 4)
    """Levels that carry a loss. 4 alone drops the companion heads."""
    dim: int = 128
    """Dimensions of an embedding."""
    hidden: int | None = None
    """Width of the MLP heads; by default the number of channels of the stage."""
    narrowing: Literal[1, 2, 4] | None = None
    """How many times narrower than its stage the bottleneck of a companion head is inside. By default as the network's
    own blocks: 4 in a ResNet-50, where levels 2 and 3 then cost a tenth, 1 in networks of BasicBlocks."""


@dataclass
class ContrastConfig:
    """Momentum contrast with a queue."""

    temperature: float = 0.2
    """τ. Too low: loss near 0 and features that only tell instances apart; too high: loss stays near chance."""
    momentum: float = 0.999
    """m of the key encoder. Short runs (less than about 10 000 steps) want 0.99."""
    queue_length: int | None = None
    """N, negatives per level. By default an eighth of the data as a power of two, 256 to 65 536, at most half the data.
    As long as the data set is too long: an image's own past key becomes its negative."""
    loss_chunk: int = 16384
    """Negatives that the loss looks at at once. Lower it if a long queue runs out of memory; the result is the same."""
    enqueue: Literal["anchor", "all"] = "anchor"
    """Which keys enter the queue: the anchors' only, or the neighbours' as well."""
    mask_known: bool = False
    """Do not push away queue entries known to be the anchor itself or one of its Ω."""
    bn_splits: int = 8
    """BatchNorm statistics are taken over this many sub-batches (one device standing in for as many).
    With 1 the network cheats: contrastive accuracy rises while the 20-NN does not."""
    reduction: Literal["mean", "sum"] = "mean"
    """Over the query groups q_a, q_p, q̂: mean (authors' code; the paper's lr fits it) or sum (the paper's formula)."""


@dataclass
class ByolConfig:
    """BYOL: no queue and no negatives; a predictor per level guesses the key. Presets NAME-byol and NAME-csml-byol
    set what goes with it (symmetric views, LARS, wide heads, other augmentation of keys)."""

    momentum: float = 0.99
    """m of the key encoder at the start; it rises to 1 over the run as half a cosine. Short runs want less."""
    predictor_hidden: int | None = None
    """Width of the predictors; by default that of the heads."""
    reduction: Literal["mean", "sum"] = "mean"
    """Over the query groups, as contrast.reduction."""


@dataclass
class OptimizerConfig:
    """SGD or LARS, and how the learning rate goes."""

    kind: Literal["sgd", "lars"] = "sgd"
    """lars scales each layer's step by the norm of its weights: for BYOL and for batches of thousands."""
    trust: float = 0.001
    """LARS: size of a layer's step as a share of its weights, at learning rate 1."""
    lr_per_256: float = 0.03
    """Learning rate for a batch of 256 anchors; scaled linearly with the batch. Halve it if the loss diverges."""
    momentum: float = 0.9
    """Momentum."""
    weight_decay: float = 1e-4
    """Weight decay. LARS leaves biases and BatchNorm out."""
    warmup_epochs: float = 0.0
    """Epochs over which the learning rate rises linearly from 0."""
    schedule: Literal["cosine", "steps"] = "cosine"
    """cosine: half a cosine to 0 over the run. steps: times 0.1 at each of the milestones."""
    milestones: tuple[int, ...] = ()
    """Epochs after which `steps` lowers the learning rate."""


@dataclass
class CheckpointConfig:
    """What is kept, and how often."""

    every_epochs: int = 1
    """Epochs between two checkpoints."""
    every_minutes: float = 10.0
    """Also save inside an epoch when this many minutes have passed."""
    every_steps: int | None = None
    """Also save inside an epoch after this many steps."""
    keep: int = 2
    """The newest checkpoints kept; older ones are removed."""


@dataclass
class MonitorConfig:
    """What is measured beside the loss."""

    tensorboard: bool = True
    """Write TensorBoard event files next to metrics.jsonl."""


@dataclass
class OnlineTestConfig(MonitorConfig):
    """What is measured beside the loss."""

    knn_every: int = 5
    """Epochs between two online 20-NN tests, where labels exist. 0: never."""


@dataclass
class HardwareConfig:
    """Where it runs. Nothing here changes what is computed beyond rounding."""

    accelerator: str = "auto"
    """cpu, cuda or auto."""
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed"] = "auto"
    """auto is bf16-mixed where the device computes it natively, else 32-true."""
    channels_last: bool = True
    """Memory layout that fast convolutions want."""
    compile: bool = False
    """Compile the encoders with torch.compile: about a minute at the start and after a resume, faster steps then.
    Needs a C++ compiler on a CPU."""
    devices: int = 1
    """Processes on this machine, one per GPU or group of cores; more than one start themselves through torchrun. Under
    torchrun or srun those decide. They share the batch: nothing else changes with their number."""
    accumulate: int = 1
    """Pieces in which a batch goes through the network, one after the other, before a step is taken. Raise it if the
    batch needs more memory than there is."""
    threads: int | None = None
    """CPU threads; by default all cores, less one for each worker where the CPU itself trains."""


@dataclass
class RunConfig:
    """What every command that trains needs to know."""

    data: str = "synthetic"
    """A folder of images (class folders, flat or nested; train/ and val/ inside are used as such), a pack of
    `csml pack`, here or far away (s3://…), or synthetic, cifar10, cifar100, stl10."""
    out: str | None = None
    """Run directory; by default the next free runs/NAME-001."""
    batch_size: int = 1024
    """Images (anchors) per step."""
    seed: int = 0
    """Same seed, same machine: same run."""
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    monitor: MonitorConfig = field(default_factory=MonitorConfig)
    hardware: HardwareConfig = field(default_factory=HardwareConfig)


@dataclass
class TrainingConfig(RunConfig):
    """What every command that trains a network on crops of images needs to know."""

    epochs: int = 200
    """Passes over the data; an epoch visits every image once."""
    images: ImagesConfig = field(default_factory=ImagesConfig)
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)


@dataclass
class PretrainConfig(TrainingConfig):
    """Everything `csml pretrain` needs to know."""

    framework: Literal["contrast", "byol"] = "contrast"
    """What is done with the views: contrast with a queue (MoCo), or BYOL; for byol start from a preset NAME-byol."""
    views: ViewsConfig = field(default_factory=ViewsConfig)
    neighbors: NeighborsConfig = field(default_factory=NeighborsConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    contrast: ContrastConfig = field(default_factory=ContrastConfig)
    byol: ByolConfig = field(default_factory=ByolConfig)
    monitor: OnlineTestConfig = field(default_factory=OnlineTestConfig)


def _crops_and_flips() -> AugmentationConfig:
    return AugmentationConfig(crop_scale=(0.08, 1.0), jitter=0.0, gray=0.0, blur=0.0)


@dataclass
class ClassifierConfig(TrainingConfig):
    """What every command that trains a classifier needs to know."""

    epochs: int = 90
    """Passes over the labelled images."""
    batch_size: int = 256
    """Images per step; all there are, if they are fewer."""
    augmentation: AugmentationConfig = field(default_factory=_crops_and_flips)
    model: BackboneConfig = field(default_factory=BackboneConfig)


@dataclass
class SupervisedConfig(ClassifierConfig):
    """Everything `csml supervised` needs to know; the defaults are those of torchvision's ResNets."""

    labels: str | None = None
    """A CSV or JSON-lines file of path and label, for some of the images; instead of the names of folders."""
    fraction: float | None = None
    """Share of the labels of each class to learn from, at least one; chosen by the seed and written to labels.csv."""
    list: str | None = None
    """A file of image names, one a line, to learn from, such as the common 1 % and 10 % lists of ImageNet."""
    holdout: float = 0.2
    """Share of the labels in --labels that tests, where the data has no test images of its own. 0: none."""
    optimizer: OptimizerConfig = field(default_factory=lambda: OptimizerConfig(lr_per_256=0.1))


def _fine_tuning() -> OptimizerConfig:
    return OptimizerConfig(lr_per_256=1e-4, weight_decay=0.0)


@dataclass
class FinetuneConfig(SupervisedConfig):
    """Everything `csml finetune` needs to know; the defaults are the paper's."""

    weights: str | None = None
    """What to start from: a run directory or a weight file, ours or another trainer's; --weights may be left out."""
    epochs: int = 60
    """Passes over the labelled images."""
    head_lr_per_256: float = 10.0
    """Learning rate of the classifier; that of the backbone is optimizer.lr_per_256."""
    optimizer: OptimizerConfig = field(default_factory=_fine_tuning)


def _mining() -> OptimizerConfig:
    return OptimizerConfig(lr_per_256=1e-4, weight_decay=1e-4, schedule="steps", milestones=(30, 60))


@dataclass
class MineConfig(ClassifierConfig):
    """Everything `csml mine` needs to know; the defaults are the paper's. Labels and test images are the run's."""

    weights: str | None = None
    """The fine-tuned run to start from; --weights may be left out."""
    epochs: int = 90
    """Passes over true and pseudo-labels, in each round."""
    head_lr_per_256: float = 0.01
    """Learning rate of the classifier; that of the backbone is optimizer.lr_per_256."""
    optimizer: OptimizerConfig = field(default_factory=_mining)
    max_entropy: float = 1.0
    """A prediction becomes a pseudo-label if its entropy is at most this, in nats. Lower it if many kept are wrong."""
    rounds: int = 1
    """How often to predict and train."""
