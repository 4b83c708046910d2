"""`python -m benchmarks.objects --data FOLDER`: what starting weights, and unlabelled training on top, give a detector.

Rows: the network untrained; its ImageNet weights; those weights after csml has seen the training images of the set
without their boxes. Each is the backbone of the same detector, trained with the same preset. Rows that are there are
kept.
"""

import argparse
from itertools import product
from pathlib import Path
from typing import Any

import csml
from benchmarks.evidence import earlier, write_results
from csml.ablations.outcomes import Outcome
from csml.ablations.plans import Ablation, Variation
from csml.ablations.plot import draw
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
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--rows", nargs="*", default=[RANDOM, START, FURTHER])
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--title", default="Objects from weights")
    parser.add_argument("--output", type=Path, default=Path("objects"), help="rows in this folder are kept")
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    done = {(o.variation.name, o.seed): o for o in earlier(asked.output, parser, [])}
    for seed, row in product(asked.seeds, asked.rows):
        if (row, seed) not in done:
            done[row, seed] = Outcome(Variation(row, None, {}, {}, {}), seed, _measured(asked, row, seed), [])
            print(row, seed, done[row, seed].measured, flush=True)
            write_results(asked.output, asked.title, "benchmarks.objects", list(done.values()))
    shown = Ablation("objects", asked.title, tuple(asked.seeds), (), {}, {}, "dots")
    draw(shown, list(done.values())).savefig(asked.output / "plot.png", dpi=150)


def _measured(asked: argparse.Namespace, row: str, seed: int) -> dict[str, float]:
    """Train the row's detector, and its average precisions on the test images as shares."""
    settings: dict[str, Any] = {"seed": seed, "monitor.tensorboard": False}
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
    settings = {"seed": seed, "epochs": asked.epochs, "images.size": asked.size, "monitor.tensorboard": False}
    if RunDirectory(out).backbone.exists():
        return csml.Run(out)
    return csml.pretrain(str(listing), out, preset="photos", weights=asked.weights, overwrite=True, **settings)


if __name__ == "__main__":
    main()
