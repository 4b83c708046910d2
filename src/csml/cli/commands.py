"""Every command: its schema, its positional arguments, the verb it calls, and the function that prints the result."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from csml import config as settings
from csml.cli.options import Options, Parsed, Positional
from csml.config import AUTO, DETECT_PRESETS, PRESETS
from csml.config.build import leaves
from csml.console import is_rank_zero

_WEIGHTS = Positional("weights", "A run directory or a weight file, of csml or another trainer; or lite0, timm:NAME.")
_EVALUATED = Positional(
    "weights", f"{_WEIGHTS.help} As a baseline: pixels (32×32), random (an untrained resnet18), random:NAME."
)
_START = Positional(_WEIGHTS.name, _WEIGHTS.help, required=False)
"""Not needed to resume a run, which has its weights."""


@dataclass(frozen=True)
class Command:
    """One command of the console script."""

    name: str
    about: str
    """a line for `csml --help`"""
    summary: str
    """a sentence for `csml COMMAND --help`"""
    schema: type[Any]
    module: str
    """the module of the verb NAME and of NAME_config"""
    positional: tuple[Positional, ...] = ()
    presets: tuple[str, ...] = ()
    flags: dict[str, str] = field(default_factory=dict)
    """more options without a value: name and help"""
    keywords: dict[str, Any] = field(default_factory=dict)
    """default keywords for the verb; the command line takes precedence"""

    def options(self) -> Options:
        """The options of its command line."""
        return Options(
            command=self.name,
            schema=self.schema,
            summary=self.summary,
            usage=self._usage(),
            positional=self.positional,
            presets=self.presets,
            resume=self.trains,
            overwrite=self.trains,
            flags=self.flags,
        )

    def _usage(self) -> str:
        words = [one.name.upper() + (" …" if one.many else "") for one in self.positional]
        preset = ["[--preset NAME]"] if self.presets else []
        settings = ["[--KEY VALUE …]"] if leaves(self.schema) else []
        return " ".join(["csml", self.name, *words, *preset, *settings])

    @property
    def trains(self) -> bool:
        """Whether it creates a run, and so has --resume RUN and --overwrite."""
        return issubclass(self.schema, settings.RunConfig)

    def config(self, given: Parsed) -> Any:
        """The settings that the command would run with."""
        keywords = self._keywords(given)
        keywords.pop("overwrite", None)
        return self._function(f"{self.name}_config")(**keywords)

    def run(self, given: Parsed) -> int:
        """Call the verb and print its result; the exit code."""
        from csml.cli import show

        result = self._function(self.name)(**self._keywords(given))
        printer: Callable[[Any], int | None] = getattr(show, self.name, show.nothing)
        return (printer(result) or 0) if is_rank_zero() else 0

    def _function(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(importlib.import_module(self.module), name)
        return function

    def _keywords(self, given: Parsed) -> dict[str, Any]:
        keywords = {**self.keywords, **given.positional, **given.settings}
        if given.config is not None:
            keywords["config"] = given.config
        if self.presets:
            keywords["preset"] = given.preset
        if self.trains:
            keywords |= {"resume": given.resume, "overwrite": given.overwrite}
        return keywords | dict.fromkeys(given.flags, True)


_ALL = (
    Command(
        "demo",
        "compare MoCo v2 and CsMl on the built-in pictures; minutes on a laptop",
        "Pre-train MoCo v2 and CsMl for the same number of epochs, and compare their kNN accuracy.",
        settings.DemoConfig,
        "csml.demonstration",
    ),
    Command(
        "pretrain",
        "learn a backbone from a folder of images, without labels",
        "Learn a backbone from images without labels; labels, if there are any, only serve for evaluation. "
        "With --data FOLDER and no --preset, the preset auto chooses batch size, epochs, image size, network and "
        "starting weights for these images and this machine, unless they are given.",
        settings.PretrainConfig,
        "csml.api.pretraining",
        presets=PRESETS,
    ),
    Command(
        "finetune",
        "turn a backbone and a few labels into a classifier",
        "Learn from a few labels with the method that is best in cross-validation (--how), calibrate, and test.",
        settings.FinetuneConfig,
        "csml.api.classifiers",
        positional=(_START,),
        presets=PRESETS,
    ),
    Command(
        "mine",
        "let the classifier label images it is certain of, and train on these too",
        "Predict the unlabelled images with a fine-tuned model, keep certain predictions, and train on both.",
        settings.MineConfig,
        "csml.api.mining",
        positional=(Positional("weights", "A run of csml finetune.", required=False),),
        presets=PRESETS,
    ),
    Command(
        "predict",
        "label images, or detect the objects on them",
        "Predict each image: label, probability, entropy in nats (0 is certain); with a detector, each object.",
        settings.PredictConfig,
        "csml.api.predicting",
        positional=(_WEIGHTS, Positional("sources", "Image files and folders.", many=True)),
        keywords={"output": "-", "keep": False},
    ),
    Command(
        "scenes",
        "show how the annotations of a folder are read; convert them to COCO",
        "Show what csml detect would train on: images, boxes per class, sizes, repairs, and a sheet of twenty.",
        settings.ScenesOfConfig,
        "csml.api.scenes",
        positional=(Positional("data", "A folder with annotated images: VOC, COCO, YOLO, masks or FiftyOne."),),
        keywords={"sheet": "scenes.png"},
    ),
    Command(
        "detect",
        "train a detector from a backbone on annotated images, and score it",
        "Train a detector around a backbone on annotated images, score it, and draw its detections. With --data FOLDER "
        "and no --preset, the preset auto chooses image size, anchors and length for these boxes and this machine.",
        settings.DetectConfig,
        "csml.api.detecting",
        positional=(Positional("weights", f"{_WEIGHTS.help[:-1]}, or random.", required=False),),
        presets=(AUTO, *DETECT_PRESETS),
    ),
    Command(
        "score",
        "score a detector on other annotated images",
        "Score a detector of csml detect on other annotated images, and draw its detections.",
        settings.ScoreConfig,
        "csml.api.scoring",
        positional=(Positional("weights", "A run of csml detect, or its detector.safetensors."),),
    ),
    Command(
        "supervised",
        "train the same network with labels, for comparison",
        "Train the same network on the same images with their labels, as a baseline for pre-training.",
        settings.SupervisedConfig,
        "csml.api.classifiers",
        presets=PRESETS,
    ),
    Command(
        "embed",
        "write the features of every image to a file",
        "Write the features of every image of a folder to a file.",
        settings.EmbedConfig,
        "csml.api.embedding",
        positional=(_EVALUATED,),
        keywords={"output": "features.npy"},
    ),
    Command(
        "neighbors",
        "find the images of a folder that are most similar to a given one",
        "Find the images of a folder that are most similar to given ones. The index is built once and kept.",
        settings.NeighborsOfConfig,
        "csml.api.neighbors",
        positional=(_EVALUATED, Positional("queries", "Image files.", many=True)),
    ),
    Command(
        "check",
        "find duplicates, leaks, wrong labels, outliers and broken images",
        "Look for near-duplicates, test images that repeat training images, labels that look wrong, outliers, and odd "
        "or unreadable pictures.",
        settings.CheckConfig,
        "csml.api.checking",
        positional=(Positional("source", "A folder of images, or a run, whose network and images are used."),),
    ),
    Command(
        "select",
        "choose which images to label next",
        "Choose the images whose labels would help most, as a file to fill in. No labels are needed to start.",
        settings.SelectConfig,
        "csml.api.selecting",
        positional=(_EVALUATED, Positional("n", "Number of images.")),
        keywords={"output": "to-label.csv"},
    ),
    Command(
        "pack",
        "pack a folder of images into a few large files, for network disks and object stores",
        "Pack a folder of images into shards with random access. Give the pack, or its address, as --data.",
        settings.PackConfig,
        "csml.api.exporting",
        positional=(Positional("folder", "Images; train/ and val/ inside are packed as such."),),
    ),
    Command(
        "export",
        "export a backbone for torchvision, timm, detectron2, onnx, …",
        "Write a backbone, without the heads of pre-training, as another library reads it.",
        settings.ExportConfig,
        "csml.api.exporting",
        positional=(_WEIGHTS,),
    ),
    Command(
        "knn",
        "evaluate a backbone by its kNN accuracy",
        "Classify test images by the weighted vote of their nearest training images.",
        settings.KnnConfig,
        "csml.api.evaluating",
        positional=(_EVALUATED,),
    ),
    Command(
        "linear",
        "evaluate a backbone by a linear classifier on its frozen features",
        "Train a linear classifier on frozen features and test it.",
        settings.LinearConfig,
        "csml.api.evaluating",
        positional=(_EVALUATED,),
        presets=PRESETS,
        flags={"resume": "Continue where an interrupted command stopped."},
    ),
    Command(
        "report",
        "write a report page: results, map, neighbours, classes, training",
        "Write one self-contained page: results, training, a map of the images, neighbours, classes, views.",
        settings.ReportConfig,
        "csml.reporting.report",
        positional=(Positional("runs", "Run directories, or one that holds several.", many=True),),
    ),
    Command(
        "explore",
        "open a local page over all images: map, search, labelling, fine-tuning",
        "Open a local page over all images of a run: map, search, labels, fine-tuning, cleaning. Stop it with Ctrl-C.",
        settings.ExploreConfig,
        "csml.explorer.explore",
        positional=(Positional("run", "A run of csml pretrain, supervised, finetune or mine."),),
    ),
    Command(
        "ablate",
        "train and evaluate variations with several seeds; one table",
        "Train and evaluate every variation in FILE with every seed; one table. Commands on one disk share the runs.",
        settings.AblateConfig,
        "csml.ablations.ablate",
        positional=(Positional("file", "A YAML file, or one that comes with csml, such as modules."),),
    ),
    Command(
        "tables",
        "put the tables of several ablations on one page",
        "Put the tables and plots of finished ablations on one page, each with its command, commit and minutes.",
        settings.TablesConfig,
        "csml.ablations.tables",
        positional=(Positional("folders", "Directories that csml ablate has written.", many=True),),
    ),
    Command(
        "presets",
        "list the named settings (presets)",
        "List the named settings for --preset.",
        settings.NoSettings,
        "csml.api.presets",
    ),
    Command(
        "doctor",
        "show what a bug report needs: versions, machine, extras, speed",
        "Describe the installation and the machine for a bug report; your home folder is written as ~.",
        settings.DoctorConfig,
        "csml.api.doctor",
    ),
    Command(
        "completion",
        "complete commands and settings with Tab, in bash, zsh or fish",
        "Print a script that completes commands, settings and their values; with --install, install it.",
        settings.NoSettings,
        "csml.cli.completion",
        positional=(Positional("shell", "bash, zsh or fish."),),
        flags={"install": "Install the script for the shell instead of printing it."},
    ),
)
COMMANDS: dict[str, Command] = {command.name: command for command in _ALL}
