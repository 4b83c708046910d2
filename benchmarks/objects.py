"""`python -m benchmarks.objects --data FOLDER`: what starting weights, and unlabelled training on top, give a detector.

Rows: the network untrained; its ImageNet weights; those weights after csml has seen the training images of the set
without their boxes. Each is the backbone of the same detector, trained with the same preset. Rows that are there are
kept.
"""

import argparse
from typing import Any

import csml
from benchmarks.evidence import fill_rows
from csml.api.detecting import detect_config, open_data
from csml.data.scenes.repair import AnnotatedFiles
from csml.runs.directory import RunDirectory

RANDOM, START, FURTHER = "untrained", "starting weights", "starting weights → CsMl"
NETWORK = "timm:tf_efficientnet_lite0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="images with boxes, in any layout that csml scenes understands")
    parser.add_argument("--weights", default="lite0")
    parser.add_argument("--preset", default="small-fpn")
    parser.add_argument("--size", type=int, default=112, help="side of the crops of the unlabelled training")
    parser.add_argument("--epochs", type=int, default=20, help="epochs of the unlabelled training")
    parser.add_argument("--title", default="Objects from weights")
    fill_rows(parser, "benchmarks.objects", (RANDOM, START, FURTHER), _measured)


def _measured(asked: argparse.Namespace, row: str, seed: int) -> dict[str, float]:
    """Train the row's detector, and its average precisions on the test images as shares."""
    settings: dict[str, Any] = {"seed": seed, "hardware.precision": "32-true", "monitor.tensorboard": False}
    if row == RANDOM:
        settings["model.backbone"] = NETWORK
    weights = {RANDOM: "random", START: asked.weights}.get(row) or str(_pretrained(asked, seed).path)
    out = asked.runs / f"{row.replace(' ', '-').replace('→', 'to')}-{seed}"
    run = csml.detect(weights, data=asked.data, out=out, preset=asked.preset, overwrite=True, **settings)
    box = run.results["detect"]["box"]
    return {name: box[name] / 100 for name in ("AP50", "AP")}


def _pretrained(asked: argparse.Namespace, seed: int) -> csml.Run:
    """The starting weights after unlabelled training on the images that the detector will be trained on."""
    out = asked.runs / f"pretrained-{seed}"
    scenes = open_data(detect_config("random", data=asked.data, preset=asked.preset)).train
    listing = asked.runs / "train.txt"
    listing.parent.mkdir(parents=True, exist_ok=True)
    assert isinstance(scenes.images, AnnotatedFiles)
    listing.write_text("".join(f"{path.resolve()}\n" for path in scenes.images.paths))
    settings = {"seed": seed, "epochs": asked.epochs, "images.size": asked.size, "hardware.precision": "32-true"}
    settings["monitor.tensorboard"] = False
    if RunDirectory(out).backbone.exists():
        return csml.Run(out)
    return csml.pretrain(str(listing), out, preset="photos", weights=asked.weights, overwrite=True, **settings)


if __name__ == "__main__":
    main()
