"""Prints the results of the commands: each function has the name of its command."""

import contextlib
import logging
import shlex
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from csml.errors import CsmlError
from csml.program import program

if TYPE_CHECKING:
    from pathlib import Path

    from csml.ablations.ablate import AblationResult
    from csml.api.checking import Checked
    from csml.api.doctor import Diagnosis
    from csml.api.evaluating import KnnResult, LinearResult
    from csml.api.exporting import Exported
    from csml.api.neighbors import Neighbor
    from csml.api.predicting import Predictions
    from csml.api.presets import Preset
    from csml.api.run import Run
    from csml.api.scenes import ScenesResult
    from csml.api.scoring import ScoreResult
    from csml.api.selecting import ToLabel
    from csml.cli.completion import Completion
    from csml.demonstration import DemoResult
    from csml.explorer.explore import Explorer
    from csml.runs.interruption import Interrupted

log = logging.getLogger("csml")


def nothing(result: Any) -> None:
    """Print nothing, for a verb whose log is sufficient."""


def pretrain(run: "Run") -> None:
    path = shlex.quote(str(run.path))
    lines = [
        "",
        "the backbone, in Python:",
        "    import csml",
        f"    backbone = csml.Run({str(run.path)!r}).backbone()",
        "    features = backbone(images)  # (B, 3, H, W), normalised → (B, C)",
    ]
    if run.verb != "pretrain" or "knn20" in run.metrics.columns:  # there are labels for evaluation
        lines += [
            "evaluate it:",
            *(f"    {program()} {verb} {path}" for verb in ("knn", "linear")),
        ]
    if run.verb == "pretrain":
        lines += [
            "label images, in the browser or in a file:",
            f"    {program()} explore {path}",
            f"    {program()} select {path} 25 --output labels.csv",
        ]
    log.info("\n".join(lines))


supervised = mine = pretrain


def finetune(run: "Run") -> None:
    result = run.results["finetune"]
    if result.get("tried"):
        table = Table("how", "accuracy", "log-loss", "", title=f"Cross-validation on {result['labels']} labels")
        table.caption = "Chosen is the first that is within a standard error of the best."
        for one in result["tried"]:
            share = f"{one['accuracy']:.1%} ± {one['error']:.1%}"
            table.add_row(one["how"], share, f"{one['log_loss']:.2f}", "chosen" if one["how"] == result["how"] else "")
        Console(stderr=True).print(table)
    if result.get("expected") is not None:
        log.info("expected accuracy %.0f %% ± %.0f", 100 * result["expected"], 100 * result["error"])
    if run.config.how == "paper":
        pretrain(run)
        return
    log.info("label other images:\n    %s predict %s FOLDER", program(), shlex.quote(str(run.path)))


def detect(run: "Run") -> None:
    _detection_scores(run.results["detect"])
    log.info("detections are in %s, as a file and as pictures; the detector, in Python:", run.path)
    log.info("    detector = csml.Run(%r).detector()", str(run.path))
    log.info("    found = detector([image])  # (3, h, w), uint8 or in [0, 1] → boxes, labels from 1, scores, masks")


def score(result: "ScoreResult") -> None:
    _detection_scores(result.result)
    log.info("detections, a sheet and figures are in %s", result.path)


def _detection_scores(result: dict[str, Any]) -> None:
    """Tables of the test of a detector: scores, classes, errors by kind."""
    from csml.evaluation.detection_report import detection_sections

    for section in detection_sections(result)[:3]:
        table = Table(*section.columns, title=section.title, caption=section.text)
        for row in section.rows:
            table.add_row(*map(Text, row))
        Console(highlight=False).print(table)


def scenes(result: "ScenesResult") -> None:
    console = Console(highlight=False)
    table = Table("class", title=f"Boxes per class ({result.format})")
    for part in result.parts:
        table.add_column(part, justify="right")
    for row, name in enumerate(result.classes):
        table.add_row(Text(name), *(f"{part.boxes[row]:,}" for part in result.parts.values()))
    console.print(table)
    table = Table("", *result.parts, title="Sizes in pixels: smallest, median, largest")
    for title, of in (("images, shorter side", "short_sides"), ("images, longer side", "long_sides"),
                      ("boxes, root of the area", "box_sides"), ("boxes per image", "crowding")):  # fmt: skip
        rows = (getattr(part, of) for part in result.parts.values())
        table.add_row(title, *("none" if row is None else " · ".join(f"{value:.0f}" for value in row) for row in rows))
    console.print(table)
    for file in result.written:
        log.info("written: %s", file)


def knn(result: "KnnResult") -> None:
    for k, accuracy in result.accuracy.items():
        print(f"{k}-NN  {accuracy:.1%}")
    _print_baselines(result.baselines, {k: f"{k}-NN" for k in result.accuracy})


def linear(result: "LinearResult") -> None:
    for stage, top1 in result.top1.items():
        print(f"stage {stage}  top-1 {top1:.1%}  top-5 {result.top5[stage]:.1%}")
    _print_baselines(result.baselines, {stage: f"stage {stage}" for stage in result.top1})


def _print_baselines(baselines: dict[str, dict[int, float]], columns: dict[int, str]) -> None:
    """A table of the baselines of the weights."""
    if not baselines:
        return
    from csml.evaluation.baselines import TITLES

    table = Table("baseline")
    for heading in columns.values():
        table.add_column(heading, justify="right")
    for name, shares in baselines.items():
        table.add_row(TITLES[name], *(f"{shares[column]:.1%}" for column in columns))
    Console(highlight=False).print(table)


def neighbors(found: "dict[str, list[Neighbor]]") -> None:
    for query, nearest in found.items():
        if len(found) > 1:
            print(f"{query}:")
        for neighbor in nearest:
            print(f"{neighbor.similarity:.4f}  {neighbor.path}")


def pack(path: "Path") -> None:
    log.info("use it: --data %s", path)


def export(result: "Exported") -> None:
    print(result.how)


def report(path: "Path") -> None:
    log.info("the report: %s (%.1f MB); open it in a browser", path, path.stat().st_size / 1e6)


def explore(explorer: "Explorer") -> None:
    with contextlib.suppress(KeyboardInterrupt):
        explorer.wait()


def tables(path: "Path") -> None:
    log.info("the page: %s", path)


def ablate(result: "AblationResult") -> int:
    if not result.table:
        for title, root, done in result.runs:
            print(f"{'done' if done else 'to do'}  {title}: {root}")
    else:
        console = Console(soft_wrap=True, highlight=False)
        console.print(f"\n{result.title}\n")
        console.print(result.table, markup=False)
        console.print(f"table, numbers and plot: {result.folder}/table.md, runs.csv, results.json, plot.png")
    for title, problem in result.failed.items():
        log.error("%s failed: %s", title, problem)
    return 1 if result.failed else 0


def check(result: "Checked") -> int:
    table = Table("problem", "images", "the worst", title=f"{result.images:,} images")
    for kind, count in result.counts.items():
        if kind in result.unchecked:
            table.add_row(kind.replace("_", " "), "", f"not checked: {result.unchecked[kind]}")
            continue
        worst = result.of(kind)[0] if count else None
        text = "" if worst is None else f"{worst.path}: {worst.detail}{f' ({worst.other})' if worst.other else ''}"
        table.add_row(kind.replace("_", " "), f"{count:,}", Text(text))
    Console().print(table)
    if result.failed:
        log.error("failed on %s", ", ".join(result.failed))
    return 1 if result.failed else 0


def select(result: "ToLabel") -> None:
    for path, reason in zip(result.paths, result.reasons, strict=True):
        print(f"{path}  {reason}")
    if any(reason.startswith("stands for") for reason in result.reasons):
        from csml.evaluation.selection import STANDS_FOR

        log.info(STANDS_FOR)


def predict(found: "Predictions") -> None:
    """The rows are already written. Fail if there is nothing, so that a pipeline stops."""
    if not found.images:
        raise CsmlError("sources: there is no image; give image files or folders with images")
    if found.unreadable == found.images:
        raise CsmlError(f"sources: no image can be read, of {found.images:,}; see the names above")


def demo(result: "DemoResult") -> None:
    ks = list(result.rows[0].accuracy)
    table = Table(title="Test pictures classified by their nearest training pictures")
    for heading in ("representation", *(f"{k}-NN" for k in ks), "purity of Ω", "minutes"):
        table.add_column(heading, justify="left" if heading == "representation" else "right")
    for row in result.rows:
        table.add_row(
            row.name,
            *(f"{row.accuracy[k]:.1%}" for k in ks),
            "" if row.purity is None else f"{row.purity:.1%}",
            "" if row.minutes is None else f"{row.minutes:.1f}",
        )
    console = Console(soft_wrap=True, highlight=False)
    console.print(table)
    root = result.path
    if result.report is not None:
        console.print(f"to look at:       {result.report} (open it in a browser)")
    console.print(f"runs and metrics: {root}/csml and {root}/moco-v2 (metrics.jsonl; tensorboard --logdir {root})")
    console.print(f"the backbone:     {root}/csml/backbone.safetensors")
    console.print(f'in Python:        import csml; backbone = csml.Run("{root}/csml").backbone()')
    console.print(f"your own images:  {program()} pretrain --data FOLDER")


def presets(found: "list[Preset]") -> None:
    from csml.config import TWINS

    width = max(len(preset.name) for preset in found) + 2
    for commands in dict.fromkeys(preset.commands for preset in found):
        print(f"{program()} {' | '.join(commands)} --preset NAME")
        for preset in found:
            if preset.commands == commands:
                print(f"  {preset.name:<{width}}{preset.about}")
        if "pretrain" in commands:
            print(f"  and each with one of {', '.join(f'-{twin}' for twin in TWINS)} at its end: another method")
            print("  without --preset, pretrain --data FOLDER chooses one for the images and the machine")


def doctor(diagnosis: "Diagnosis") -> None:
    print(diagnosis)


def completion(result: "Completion") -> None:
    print(result.script if result.path is None else f"written to {result.path}; open a new {result.shell} to use it")
    if result.needs is not None:
        print(result.needs)


def continue_command(stop: "Interrupted", words: list[str]) -> str:
    """The command that continues an interrupted run."""
    if stop.command == "ablate":  # it finds finished runs by itself
        return shlex.join([program(), *words])
    if stop.command == "linear":
        return shlex.join([program(), *(word for word in words if word != "--resume"), "--resume"])
    return f"{program()} {stop.command} --resume {shlex.quote(str(stop.run))}"
