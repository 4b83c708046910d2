"""Every command: its schema, its positional arguments, the verb it calls, and what it prints of the result."""

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
_JUDGED = Positional(
    "weights", f"{_WEIGHTS.help} To compare with: pixels (32×32), random (an untrained resnet18), random:NAME."
)
_START = Positional(_WEIGHTS.name, _WEIGHTS.help, required=False)
"""Not needed to resume a run, which knows its weights."""


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
    """where the verb NAME and NAME_config are"""
    positional: tuple[Positional, ...] = ()
    presets: tuple[str, ...] = ()
    flags: dict[str, str] = field(default_factory=dict)
    """more options without a value: name and help"""
    keywords: dict[str, Any] = field(default_factory=dict)
    """given to the verb where the command line does not say otherwise"""

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
        """Whether it makes a run, and so has --resume RUN and --overwrite."""
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
        "watch MoCo v2 and CsMl learn from the built-in pictures; minutes on a laptop",
        "Pre-train MoCo v2 and CsMl for equal epochs and see how far each gets.",
        settings.DemoConfig,
        "csml.demonstration",
    ),
    Command(
        "pretrain",
        "learn a backbone from a folder of images, labels or not",
        "Learn a backbone from images without labels; where labels exist they only measure.",
        settings.PretrainConfig,
        "csml.api.pretraining",
        presets=PRESETS,
    ),
    Command(
        "finetune",
        "turn a backbone and a few labels into a classifier",
        "Learn from a few labels in the way that does best in cross-validation (--how), calibrate, and test.",
        settings.FinetuneConfig,
        "csml.api.classifiers",
        positional=(_START,),
        presets=PRESETS,
    ),
    Command(
        "mine",
        "let the classifier label what it is certain of, and train on that too",
        "Predict the unlabelled images with a fine-tuned model, keep certain predictions, and train on both.",
        settings.MineConfig,
        "csml.api.mining",
        positional=(Positional("weights", "A run of csml finetune.", required=False),),
        presets=PRESETS,
    ),
    Command(
        "predict",
        "label images, or find the objects on them",
        "Say what is on each image: label, probability, entropy in nats (0 is certain); of a detector, each object.",
        settings.PredictConfig,
        "csml.api.predicting",
        positional=(_WEIGHTS, Positional("sources", "Image files and folders.", many=True)),
        keywords={"output": "-", "keep": False},
    ),
    Command(
        "scenes",
        "show how the annotations of a folder are understood; convert them to COCO",
        "Show what csml detect would learn from: images, boxes per class, sizes, repairs, and a sheet of twenty.",
        settings.ScenesOfConfig,
        "csml.api.scenes",
        positional=(Positional("data", "A folder with annotated images: VOC, COCO, YOLO, masks or FiftyOne."),),
        keywords={"sheet": "scenes.png"},
    ),
    Command(
        "detect",
        "train a detector from a backbone on annotated images, and score it",
        "Train a detector around a backbone on annotated images, score it, and draw what it finds.",
        settings.DetectConfig,
        "csml.api.detecting",
        positional=(Positional("weights", f"{_WEIGHTS.help[:-1]}, or random.", required=False),),
        presets=(AUTO, *DETECT_PRESETS),
    ),
    Command(
        "score",
        "score a detector on other annotated images",
        "Score a detector of csml detect on other annotated images, and draw what it finds.",
        settings.ScoreConfig,
        "csml.api.scoring",
        positional=(Positional("weights", "A run of csml detect, or its detector.safetensors."),),
    ),
    Command(
        "supervised",
        "train the same network with labels, for comparison",
        "Train the same network on the same images with their labels: what pre-training is compared with.",
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
        positional=(_JUDGED,),
        keywords={"output": "features.npy"},
    ),
    Command(
        "neighbors",
        "find the images of a folder that are most like a given one",
        "Find the images of a folder that are most similar to given ones. The index is made once and kept.",
        settings.NeighborsOfConfig,
        "csml.api.neighbors",
        positional=(_JUDGED, Positional("queries", "Image files.", many=True)),
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
        "say which images to label next",
        "Choose the images whose labels would teach most: a file to fill in. It needs no label to begin with.",
        settings.SelectConfig,
        "csml.api.selecting",
        positional=(_JUDGED, Positional("n", "How many images.")),
        keywords={"output": "to-label.csv"},
    ),
    Command(
        "pack",
        "a folder of images as a few large files, for network disks and object stores",
        "Pack a folder of images into shards with random access. Give the pack, or its address, as --data.",
        settings.PackConfig,
        "csml.api.exporting",
        positional=(Positional("folder", "Images; train/ and val/ inside are packed as such."),),
    ),
    Command(
        "export",
        "write a backbone for torchvision, timm, detectron2, onnx, …",
        "Write a backbone, without the heads of pre-training, as another library reads it.",
        settings.ExportConfig,
        "csml.api.exporting",
        positional=(_WEIGHTS,),
    ),
    Command(
        "knn",
        "judge a backbone by its nearest neighbours",
        "Classify test images by the weighted vote of their nearest training images.",
        settings.KnnConfig,
        "csml.api.evaluating",
        positional=(_JUDGED,),
    ),
    Command(
        "linear",
        "judge a backbone by a linear classifier on its frozen features",
        "Train a linear classifier on frozen features and test it.",
        settings.LinearConfig,
        "csml.api.evaluating",
        positional=(_JUDGED,),
        presets=PRESETS,
        flags={"resume": "Continue where an interrupted command stopped."},
    ),
    Command(
        "report",
        "one page to look at: results, map, neighbours, classes, training",
        "Write one self-contained page: results, training, a map of the images, neighbours, classes, views.",
        settings.ReportConfig,
        "csml.reporting.report",
        positional=(Positional("runs", "Run directories, or one that holds several.", many=True),),
    ),
    Command(
        "explore",
        "a local page over all images: map, search, what to label next, fine-tuning",
        "Open a local page over all images of a run: map, search, labels, fine-tuning, cleaning. Stop it with Ctrl-C.",
        settings.ExploreConfig,
        "csml.explorer.explore",
        positional=(Positional("run", "A run of csml pretrain, supervised, finetune or mine."),),
    ),
    Command(
        "ablate",
        "train and judge variations at several seeds; one table",
        "Train and judge every variation in FILE at every seed; one table. Commands that share a disk share the runs.",
        settings.AblateConfig,
        "csml.ablations.ablate",
        positional=(Positional("file", "A YAML file, or one that comes with csml, such as modules."),),
    ),
    Command(
        "tables",
        "the tables of several ablations as one page",
        "Put the tables and plots of finished ablations on one page, each with its command, commit and minutes.",
        settings.TablesConfig,
        "csml.ablations.tables",
        positional=(Positional("folders", "Directories that csml ablate has written.", many=True),),
    ),
    Command(
        "presets",
        "the named settings, one line each",
        "List the named settings that --preset takes.",
        settings.NoSettings,
        "csml.api.presets",
    ),
    Command(
        "doctor",
        "what a bug report needs: versions, machine, extras, speed",
        "Describe the installation and the machine, to be pasted into a bug report; your home folder is ~ in it.",
        settings.DoctorConfig,
        "csml.api.doctor",
    ),
    Command(
        "completion",
        "commands and settings at the press of Tab, in bash, zsh or fish",
        "Print a script that completes commands, settings and their values; with --install, install it.",
        settings.NoSettings,
        "csml.cli.completion",
        positional=(Positional("shell", "bash, zsh or fish."),),
        flags={"install": "Put the script where the shell looks for it, instead of printing it."},
    ),
)
COMMANDS: dict[str, Command] = {command.name: command for command in _ALL}
