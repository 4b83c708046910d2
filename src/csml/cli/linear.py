"""`csml linear`: linear classification on frozen features."""

import logging
from typing import Literal

from csml.cli.judging import labeled_splits, parse, result_path, write_result
from csml.config.checks import check_linear
from csml.config.protocols import LinearConfig
from csml.evaluation.linear import LinearProbe
from csml.training.device import build_fabric
from csml.training.interruption import Interrupted
from csml.weights import load_backbone

log = logging.getLogger("csml")


SUMMARY = "Train a linear classifier on frozen features and test it."


def run(arguments: list[str]) -> int:
    weights, config, flags = parse("linear", LinearConfig, SUMMARY, arguments, flags=("resume",))
    code = carry_out(weights, config, "must" if flags.resume else "no")
    if code:
        log.warning("the same command with --resume continues")
    return code


def carry_out(weights: str, config: LinearConfig, resume: Literal["no", "must", "can"]) -> int:
    """Train, test, print, write; the exit code. `can`: continue where it stopped, if it was these weights."""
    check_linear(config)
    train, val = labeled_splits(config)
    path = result_path(weights, config.output, "linear.json")
    checkpoints = path.with_name(f"{path.stem}-checkpoints")
    fabric = build_fabric(config.hardware, train, config.images.workers)
    probe = LinearProbe(load_backbone(weights), train, val, config, fabric, checkpoints)
    if resume == "must" or (resume == "can" and probe.can_resume()):
        probe.resume()
    try:
        result = probe.fit()
    except Interrupted as stop:
        log.warning(str(stop))
        return stop.exit_code
    if not probe.world.first:
        return 0
    write_result(path, weights, config, result)
    for stage, scores in result["stages"].items():
        print(f"stage {stage}  top-1 {scores['top1']:.1%}  top-5 {scores['top5']:.1%}")
    log.info("written to %s", path)
    return 0
