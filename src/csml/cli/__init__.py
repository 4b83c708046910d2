"""The command line: `csml COMMAND …`. Each command is a module with a `run(arguments)`; errors end in one line."""

import importlib
import logging
import sys

from csml.errors import CsmlError

COMMANDS = {
    "demo": ("csml.cli.demo", "watch MoCo v2 and CsMl learn from the built-in pictures; minutes on a laptop"),
    "pretrain": ("csml.cli.pretrain", "learn a backbone from a folder of images, labels or not"),
    "finetune": ("csml.cli.finetune", "turn a backbone and a few labels into a classifier"),
    "mine": ("csml.cli.mine", "let the classifier label what it is sure of, and train on that too"),
    "predict": ("csml.cli.predict", "label images, or find the objects on them"),
    "detect": ("csml.cli.detect", "train a detector from a backbone on VOC or COCO annotations, and score it"),
    "supervised": ("csml.cli.supervised", "train the same network with labels, for comparison"),
    "embed": ("csml.cli.embed", "write the features of every image to a file"),
    "neighbors": ("csml.cli.neighbors", "find the images of a folder that are most like a given one"),
    "pack": ("csml.cli.pack", "a folder of images as a few large files, for network disks and object stores"),
    "export": ("csml.cli.export", "write a backbone for torchvision, timm, detectron2, onnx, …"),
    "knn": ("csml.cli.knn", "judge a backbone by its nearest neighbours"),
    "linear": ("csml.cli.linear", "judge a backbone by a linear classifier on its frozen features"),
    "report": ("csml.cli.report", "one page to look at: results, map, neighbours, classes, training"),
    "explore": ("csml.cli.explore", "a local page over all images: search, filter, label"),
    "ablate": ("csml.cli.ablate", "train and judge variations at several seeds; one table"),
    "tables": ("csml.cli.tables", "the tables of several ablations as one page"),
}

_HELP = """csml learns visual representations from unlabelled images.

usage: csml COMMAND [options]

{commands}

Start with:           csml demo
With your own images: csml pretrain --preset photos --data FOLDER
All options:          csml COMMAND --help
"""


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script."""
    words = sys.argv[1:] if arguments is None else arguments
    sys.exit(_dispatch(words))


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_HELP.format(commands="\n".join(f"  {name:<12}{text}" for name, (_, text) in COMMANDS.items())), end="")
        return 0
    if words[0] in ("-V", "--version"):
        from csml import __version__

        print(f"csml {__version__}")
        return 0
    try:
        if words[0] not in COMMANDS:
            raise CsmlError(f"there is no command {words[0]!r}; choose one of {', '.join(COMMANDS)}")
        _show_log()
        command = importlib.import_module(COMMANDS[words[0]][0])
        return int(command.run(words[1:]) or 0)
    except CsmlError as error:
        print(f"csml: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("csml: stopped", file=sys.stderr)
        return 130


def _show_log() -> None:
    """The package's log on the console, through rich; other packages' chatter is kept to warnings."""
    from rich.console import Console
    from rich.logging import RichHandler

    console = Console(stderr=True)
    handler: logging.Handler = logging.StreamHandler()
    if console.is_terminal:  # rich keeps log lines and a running progress bar apart
        handler = RichHandler(console=console, show_time=False, show_level=False, show_path=False, highlighter=None)
    log = logging.getLogger("csml")
    log.setLevel(logging.INFO)
    log.handlers = [handler]
    log.propagate = False
    for noisy in ("lightning", "lightning.fabric", "lightning_fabric", "lightning.fabric.utilities.rank_zero"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
