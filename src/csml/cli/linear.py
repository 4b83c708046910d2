"""`csml linear`: linear classification on frozen features."""

import logging

from csml.cli.judging import labeled_splits, parse, result_path
from csml.config.checks import check_linear
from csml.config.protocols import LinearConfig
from csml.evaluation.linear import LinearProbe
from csml.training.device import build_fabric
from csml.training.interruption import Interrupted
from csml.training.run_directory import write_json
from csml.weights import load_backbone

log = logging.getLogger("csml")


def run(arguments: list[str]) -> int:
    summary = "Train a linear classifier on frozen features and test it."
    weights, config, flags = parse("linear", LinearConfig, summary, arguments, flags=("resume",))
    check_linear(config)
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
