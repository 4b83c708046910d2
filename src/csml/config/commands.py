"""Settings of the commands that use weights or present results."""

from dataclasses import dataclass
from typing import Literal

from csml.config.fields import Settings, bounded, common, each, share
from csml.config.images import ImagesConfig
from csml.config.network import STAGES
from csml.config.optimizer import MAX_EPOCHS
from csml.config.run import MAX_BATCH, OF_THE_RUN, SEEDS, HardwareConfig
from csml.config.sources import Sources


@dataclass(frozen=True)
class SearchingConfig(Settings):
    """Settings of commands that use all images of a folder."""

    default_texts = OF_THE_RUN

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
    """Number of neighbours of each image, without the image itself."""
    sheet: str | None = common(None)
    """An image file to draw: each image with its neighbours next to it."""
    index: str | None = common(None)
    """Folder of the saved index; by default inside the run directory, next to the weight file, or in csml's cache for
    weights by name."""


PROBLEMS = (
    "unreadable", "leaks", "duplicates", "wrong_labels", "outliers", "dark", "flat", "blurred", "tiny", "shape",
)  # fmt: skip
"""What `csml check` looks for. A leak is a test image that repeats a training image."""


@dataclass(frozen=True)
class CheckConfig(SearchingConfig):
    """Settings of `csml check`."""

    default_texts = OF_THE_RUN | {"data": "default: SOURCE, or the images of the run"}

    weights: str | None = common(None)
    """Network whose features are compared; by default that of the run, or lite0 if images are given."""
    output: str | None = common(None)
    """A .csv file of all problems: kind, path, split, label, detail, score, other."""
    sheet: str | None = common(None)
    """An image file to draw: the worst of each kind."""
    fail_on: tuple[str, ...] = common(())
    """Kinds that end the command with exit code 1 if they occur, such as [leaks, unreadable]: unreadable, leaks,
    duplicates, wrong_labels, outliers, dark, flat, blurred, tiny, shape."""
    similarity: float = common(share(0.95))
    """Smallest cosine similarity of the features of near-duplicates."""
    confidence: float = share(0.8)
    """A label looks wrong if another class is ahead of it by this probability."""
    far: float = bounded(3.5, above=0, limit=1e6)
    """An image is an outlier if its distance to the nearest images is this many robust standard deviations above the
    median."""


@dataclass(frozen=True)
class SelectConfig(SearchingConfig):
    """Settings of `csml select`."""

    by: Literal["both", "coverage", "uncertainty"] = common("both")
    """What to label next. coverage: images that represent many unlabelled ones. uncertainty: images that the classifier
    is least sure of. both: images that represent many the classifier is unsure of. Without labels of two classes it is
    always coverage."""
    labels: str | None = common(None)
    """A CSV or JSON-lines file of the labels so far, path and label; by default those that the run learnt from."""
    output: str | None = common(None)
    """A .csv file to fill in: the labels so far, then the images to label, with an empty column label. It may be the
    file of --labels. By default to-label.csv, from Python none."""
    seed: int = bounded(0, low=0, limit=SEEDS - 1)
    """Random seed of the sample that is used if there are more than 8192 images."""


@dataclass(frozen=True)
class PredictConfig(Settings):
    """Settings of `csml predict`."""

    default_texts = OF_THE_RUN

    output: str | None = common(None)
    """A .csv file, or .jsonl or .json for JSON lines; - for standard output, the default of the command line."""
    batch_size: int | None = common(bounded(None, low=1, limit=MAX_BATCH))
    """Images per batch; by default 256, or 8 for a detector."""
    min_score: float | None = common(share(None))
    """Detectors: leave out objects with a lower score. By default the score with the best F1 on the test images of the
    run, or 0.5 if that is unknown."""
    masks: Literal["rle", "polygons", "none"] = "rle"
    """Detectors with masks: how masks are written, in COCO's form: run lengths, or polygons, which have no holes."""
    pictures: str | None = common(None)
    """Detectors: a folder for the images with the objects drawn on them."""
    tiles: int | None = bounded(None, low=32, limit=100_000, unit="pixels")
    """Detectors: cut images into overlapping tiles of this side, in pixels of the image, and merge the detections: for
    images with small objects that are much larger than the training images."""
    every: int = bounded(1, low=1, limit=10**6)
    """Detectors: use every n-th frame of a video."""
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
    part: Literal["backbone", "classifier", "detector"] | None = None
    """What to export; by default the backbone, or the detector of a run of detect. classifier: of a run of finetune,
    mine or supervised, with its class names; classifiers and detectors as onnx only."""
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
    """Where the images of the runs are now, if they have moved."""
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
    """Where the images of the run are now, if they have moved."""
    port: int = bounded(8765, low=0, high=65_535)
    """Port of the page; 0: any free port."""
    browser: bool = True
    """Open the page in a browser."""
    columns: str | None = None
    """A CSV file with a header: path, and further columns to colour and filter the images by."""
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
    """Evaluate on validation images, a fifth of the training images, to choose between variations; the test images are
    not used. Otherwise the table is a report on the test images. Runs and tables of the two are never mixed."""
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
    """Settings of a command that has none."""


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
