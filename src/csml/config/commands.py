"""Settings of the commands that use weights or present results."""

from dataclasses import dataclass
from typing import Literal

from csml.config.fields import Settings, bounded, common, each, share
from csml.config.images import ImagesConfig
from csml.config.network import STAGES
from csml.config.optimizer import MAX_EPOCHS
from csml.config.run import MAX_BATCH, SEEDS, HardwareConfig
from csml.config.sources import Sources


@dataclass(frozen=True)
class SearchingConfig(Settings):
    """Settings of commands that look at all images of a folder."""

    data: Sources = common(Sources("synthetic"))
    """A folder, of which all images are used, or anything else that `csml pretrain` takes, of which the training images
    are used."""
    images: ImagesConfig = ImagesConfig()
    hardware: HardwareConfig = HardwareConfig()


@dataclass(frozen=True)
class EmbedConfig(SearchingConfig):
    """Settings of `csml embed`."""

    output: str | None = common(None)
    """A .npy or .parquet file; by default features.npy, from Python none. A .npy file holds a matrix (images,
    dimensions), and next to it is a .csv with the id, path and label of every row; .parquet: all in one table."""
    stage: int = common(bounded(4, low=STAGES[0], high=STAGES[-1]))
    """Stage whose pooled features are written."""
    batch_size: int = common(bounded(256, low=1, limit=MAX_BATCH))
    """Images per batch."""


@dataclass(frozen=True)
class NeighborsOfConfig(SearchingConfig):
    """Settings of `csml neighbors`."""

    k: int = common(bounded(10, low=1, limit=10**6))
    """Number of neighbours of each image."""
    sheet: str | None = common(None)
    """An image file to draw: each image with its neighbours next to it."""
    index: str | None = common(None)
    """Folder of the saved index; by default inside the run directory, next to the weight file, or in csml's cache for
    weights by name."""


@dataclass(frozen=True)
class PredictConfig(Settings):
    """Settings of `csml predict`."""

    output: str | None = common(None)
    """A .csv file, or .jsonl or .json for JSON lines; - for standard output, the default of the command line."""
    batch_size: int | None = common(bounded(None, low=1, limit=MAX_BATCH))
    """Images per batch; by default 256, or 8 for a detector."""
    min_score: float = common(share(0.5))
    """Detectors: leave out objects with a lower score."""
    images: ImagesConfig = ImagesConfig()
    hardware: HardwareConfig = HardwareConfig()


@dataclass(frozen=True)
class PackConfig(Settings):
    """Settings of `csml pack`."""

    output: str | None = common(None)
    """Folder to write; by default FOLDER-pack."""
    shard_mb: float = common(bounded(256.0, above=0, limit=1e6))
    """Megabytes per shard."""
    images: ImagesConfig = ImagesConfig()


@dataclass(frozen=True)
class ExportConfig(Settings):
    """Settings of `csml export`."""

    to: Literal["torchvision", "timm", "detectron2", "onnx", "safetensors", "huggingface"] | None = None
    """Library or format to export to; by default torchvision for its ResNets, timm for other networks of timm, onnx for
    the rest and for classifiers. huggingface: a folder in the layout of timm models on the Hugging Face Hub; for
    small, tiny and nano a folder with the few lines of torch that build the network."""
    part: Literal["backbone", "classifier"] = "backbone"
    """What to export. classifier: of a run of finetune, mine or supervised, with its class names; onnx only."""
    output: str | None = None
    """File or folder; by default RUN/export/NAME with the suffix of the format, or next to a weight file."""
    overwrite: bool = False
    """Replace existing files."""


@dataclass(frozen=True)
class ReportConfig(Settings):
    """Settings of `csml report`."""

    output: str | None = None
    """The page to write; by default report.html in the run, or next to several runs."""
    figures: str | None = None
    """A folder for the same figures as PNG and SVG."""
    data: str | None = None
    """Where the images of the runs are now, if they were moved."""
    points: int = bounded(5000, low=1, limit=1_000_000)
    """Largest number of images on a map; the seed chooses them. Ten thousand give a page of less than 15 MB."""
    tests: int = bounded(2000, low=1, limit=1_000_000)
    """Largest number of test images to examine."""
    seed: int = bounded(0, low=0, limit=SEEDS - 1)
    """Random seed of the choice of images and of the map."""


@dataclass(frozen=True)
class ExploreConfig(Settings):
    """Settings of `csml explore`."""

    data: str | None = None
    """Where the images of the run are now, if they were moved."""
    port: int = bounded(8765, low=0, high=65_535)
    """Port of the page; 0: any free port."""
    browser: bool = True
    """Open the page in a browser."""
    seed: int = bounded(0, low=0, limit=SEEDS - 1)
    """Random seed of the map."""


@dataclass(frozen=True)
class AblateConfig(Settings):
    """Settings of `csml ablate`."""

    scale: str | None = None
    """Scale to run, such as demo, cifar10 or paper, if the file has several."""
    data: str | None = None
    """Images for all runs; by default those named in the file."""
    out: str | None = None
    """Directory of all runs and of the table; by default runs/ablate-NAME-SCALE, with -tune at the end for
    --tune."""
    runs: str | None = None
    """Directory of runs shared by several ablations and named by their settings: a run that appears in two tables is
    trained once. By default the runs are in --out, named by their rows."""
    earlier: tuple[str, ...] = ()
    """Output directories of earlier ablations with the same file: results found there are reused, and only the rest is
    run. For runs that were deleted, or made on machines without a common disk."""
    tune: bool = False
    """Judge on validation images, a fifth of the training images, to choose between variations; the test images stay
    unseen. Otherwise the table is a report, judged on the test images. Runs and tables of the two are never mixed."""
    seeds: tuple[int, ...] | None = each(None, low=0, limit=SEEDS - 1)
    """Seeds to use instead of those in the file."""
    dry_run: bool = False
    """Only list the runs, and which of them are finished."""


@dataclass(frozen=True)
class TablesConfig(Settings):
    """Settings of `csml tables`."""

    output: str = "tables.md"
    """The page to write, in Markdown; plots go into a folder of the same name."""
    title: str = "Ablations"
    """Heading of the page."""
    introduction: str | None = None
    """A Markdown file to insert below the heading."""


@dataclass(frozen=True)
class NoSettings(Settings):
    """Of a command without settings."""


@dataclass(frozen=True)
class DoctorConfig(Settings):
    """Settings of `csml doctor`."""

    seconds: float = bounded(2.0, low=0, limit=3600)
    """Length of the speed test. 0: none."""


@dataclass(frozen=True)
class DemoConfig(Settings):
    """Settings of `csml demo`."""

    data: Sources = Sources("synthetic")
    """Labelled images of about 32 pixels: synthetic, cifar10, or a folder with one folder per class."""
    out: str | None = None
    """Directory of both runs; by default the next free runs/demo-001."""
    epochs: int | None = bounded(None, low=1, limit=MAX_EPOCHS)
    """Passes over the data, the same for both methods; by default those of the preset."""
    seed: int = bounded(0, low=0, limit=SEEDS - 1)
    """Random seed of both runs."""
