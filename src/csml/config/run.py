"""Settings shared by all commands that train."""

from dataclasses import dataclass
from typing import Literal

from csml.config.fields import Settings, bounded, common
from csml.config.images import AugmentationConfig, ImagesConfig
from csml.config.optimizer import MAX_EPOCHS, OptimizerConfig
from csml.config.sources import Sources

MAX_BATCH = 2**20
SEEDS = 2**32
"""Seeds must be below this."""


@dataclass(frozen=True)
class CheckpointConfig(Settings):
    """Checkpoints: how often they are written and how many are kept."""

    every_epochs: int = bounded(1, low=1, limit=MAX_EPOCHS)
    """Epochs between two checkpoints."""
    every_minutes: float = bounded(10.0, above=0, limit=1e6)
    """Also save within an epoch when this many minutes have passed."""
    every_steps: int | None = bounded(None, low=1, limit=10**9)
    """Also save within an epoch after this many steps."""
    keep: int = bounded(2, low=1, limit=1_000_000)
    """Number of checkpoints to keep; older ones are deleted."""


@dataclass(frozen=True)
class MonitorConfig(Settings):
    """Measurements during training."""

    tensorboard: bool | None = None
    """Write TensorBoard event files next to metrics.jsonl. By default if the tensorboard package is installed."""
    wandb: str | None = None
    """Also log to Weights & Biases, to the project of this name; needs the extra [wandb]. WANDB_MODE=offline keeps the
    records in the run directory until `wandb sync`."""
    mlflow: str | None = None
    """Also log to MLflow, to the experiment csml: the address of a server or database, or file: and a folder, for
    which newer versions of MLflow need MLFLOW_ALLOW_FILE_STORE=true; needs the extra [mlflow]."""


@dataclass(frozen=True)
class OnlineTestConfig(MonitorConfig):
    """Measurements during training."""

    knn_every: int = bounded(5, low=0, limit=MAX_EPOCHS)
    """Epochs between two tests of the 20-NN accuracy, if the data has labels. 0: never."""
    baselines: bool = True
    """If the data has labels: measure the kNN accuracy of the baselines before training (largest class, raw pixels,
    untrained network, starting weights), and compare the finished run with them, as `csml knn` does."""
    keep_features: bool = True
    """At the end compute the features of all images of a folder, at most 20,000, and store them in csml's cache:
    select, explore, finetune and embed need them first."""


@dataclass(frozen=True)
class LabelTestConfig(MonitorConfig):
    """Measurements during training."""

    test_every: int | None = bounded(None, low=0, limit=MAX_EPOCHS)
    """Epochs between two tests on the test images; the last epoch is always tested, and the best weights are those of
    the best test. By default a tenth of the epochs. 0: only after the last."""


@dataclass(frozen=True)
class HardwareConfig(Settings):
    """The machine. These settings change the result only by rounding errors."""

    accelerator: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: cuda if there is a GPU that it runs on, else cpu."""
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed"] = "auto"
    """auto: on a GPU bf16-mixed if supported, else 32-true; on a CPU whichever is faster for this network, measured
    once per machine (--print-config shows it). A resumed run keeps its precision."""
    channels_last: bool | None = None
    """Use the channels-last memory layout, which makes most convolutions fast. By default on a GPU; on a CPU if it is
    faster for this network, measured once per machine."""
    compile: bool = False
    """Compile the encoders with torch.compile. Steps get faster, but a start or resume takes about a minute longer.
    Needs a C++ compiler on a CPU."""
    devices: int = common(bounded(1, low=1, limit=1024))
    """Number of processes on this machine, one per GPU or group of cores; torchrun and srun take precedence. The
    processes share the batch; their number changes nothing else."""
    join_minutes: float = bounded(10.0, low=0.01, limit=1440)
    """Minutes within which all processes must have started; otherwise the others end and name the missing one."""
    accumulate: int = bounded(1, low=1, limit=MAX_BATCH)
    """Gradient accumulation: number of pieces into which each batch is split. Raise it if the batch does not fit into
    memory."""
    threads: int | None = bounded(None, low=1, limit=1024)
    """CPU threads. By default all cores; if the CPU trains, one less for each worker, and fewer while other programs
    keep cores busy. A fixed number makes results reproducible to the bit."""


NEEDS_DATA = {"data": "needed, unless the preset or --config names images"}
"""What the help of a command says that starts without a run."""
OF_THE_RUN = {
    "data": "default: the images of the run",
    "images": "default: that of the run, otherwise {}",
    "hardware": "default: that of the run, otherwise {}",
    "hardware.devices": "default: {}",
    "hardware.accumulate": "default: {}",
}
"""What the help of a command says that inherits these settings from a run."""


@dataclass(frozen=True)
class RunConfig(Settings):
    """Settings of every command that trains."""

    data: Sources = common(Sources("synthetic"))
    """A folder of images (one folder per class, flat or nested; train/ and val/ or test/ inside it are used as such),
    several of them separated by commas, a pattern such as 'photos/*/*.jpg' or 'shards-{000..012}.tar', a list of
    paths (.txt, .csv, .jsonl), a Hugging Face data set (a folder, .parquet, hf:NAME), a pack made by `csml pack`, local
    or remote (s3://…), or synthetic, cifar10, cifar100, stl10. See docs/data.md."""
    out: str | None = common(None)
    """Run directory; by default the next free runs/NAME-001."""
    batch_size: int = common(bounded(1024, low=2, limit=MAX_BATCH))
    """Images (anchors) per step."""
    seed: int = common(bounded(0, low=0, limit=SEEDS - 1))
    """Random seed. The same seed on the same machine gives the same run; set `hardware.threads` for identical bits."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    monitor: MonitorConfig = MonitorConfig()
    hardware: HardwareConfig = HardwareConfig()


@dataclass(frozen=True)
class TrainingConfig(RunConfig):
    """Settings of every command that trains a network on crops of images."""

    epochs: int = common(bounded(200, low=1, limit=MAX_EPOCHS))
    """Passes over the data; an epoch uses every image once."""
    images: ImagesConfig = ImagesConfig()
    augmentation: AugmentationConfig = AugmentationConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
