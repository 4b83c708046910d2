"""`csml linear`: linear classification on frozen features."""

import logging

from csml.cli.judging import labeled_splits, parse, result_path
from csml.errors import CsmlError
from csml.evaluation.linear import LinearProbe
from csml.evaluation.settings import LinearConfig
from csml.training.device import build_fabric
from csml.training.interruption import Interrupted
from csml.training.run_directory import write_json
from csml.weights import load_backbone

log = logging.getLogger("csml")


def run(arguments: list[str]) -> int:
    summary = "Train a linear classifier on frozen features and test it."
    weights, config, flags = parse("linear", LinearConfig, summary, arguments, flags=("resume",))
    check(config)
    train, val = labeled_splits(config)
    path = result_path(weights, config.output, "linear.json")
    checkpoints = path.with_name(f"{path.stem}-checkpoints")
    fabric = build_fabric(config.hardware, train, config.images.workers)
    probe = LinearProbe(load_backbone(weights), train, val, config, fabric, checkpoints)
    if flags.resume:
        probe.resume()
    try:
        result = probe.fit()
    except Interrupted as stop:
        log.warning(str(stop))
        return stop.exit_code
    write_json(
        path, {"weights": weights, "data": config.data, "augment": config.augment, "epochs": config.epochs, **result}
    )
    for stage, scores in result["stages"].items():
        print(f"stage {stage}  top-1 {scores['top1']:.1%}  top-5 {scores['top5']:.1%}")
    log.info("written to %s", path)
    return 0


def check(config: LinearConfig) -> None:
    """What a linear evaluation cannot be."""
    if not config.stages or not set(config.stages) <= {1, 2, 3, 4}:
        raise CsmlError(f"stages: some of 1, 2, 3, 4, not {list(config.stages)}")
    if config.epochs < 1 or config.batch_size < 1 or config.lr <= 0:
        raise CsmlError("epochs, batch_size and lr: above 0")
