"""`csml pretrain`: settings in, run directory out."""

import logging
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from csml.config.checks import check_against_data, check_pretrain
from csml.config.parsing import SettingsParser
from csml.config.presets import PRESETS, flatten, preset_settings
from csml.config.schema import NAMED, PretrainConfig
from csml.errors import CsmlError
from csml.program import program

log = logging.getLogger("csml")

_MAY_CHANGE = ("out", "images.workers", "hardware.", "checkpoint.", "monitor.")
"""Settings that a resumed run may have otherwise than it started with."""
_USAGE = "csml pretrain [--preset NAME] [--data FOLDER] [--config FILE] [--KEY VALUE …]"


@dataclass
class _Options:
    """What is asked of the command beside the settings of the run."""

    overwrite: bool
    resume: str | None


def run(arguments: list[str]) -> int:
    """Parse, check, train."""
    config, options = parse(arguments)
    return pretrain(config, options.resume, options.overwrite)


def parse(arguments: list[str]) -> tuple[PretrainConfig, _Options]:
    """Settings in their order: defaults, preset (or the resumed run), --config, command line."""
    chosen = _parser().first_look(arguments)
    parser = _parser()
    before: dict[str, Any] = {}
    if chosen.resume is not None:
        if chosen.preset is not None:
            raise CsmlError("preset: a resumed run has its settings; leave --preset out")
        before = _settings_of(chosen.resume)
    elif chosen.preset is not None:
        before = preset_settings(chosen.preset)
    parser.start_from(before, origin=chosen.resume or f"preset {chosen.preset}")
    settings = parser.settings(arguments)
    config = parser.build(settings, PretrainConfig)
    check_pretrain(config)
    if config.data not in NAMED:  # so that the run can be continued and judged from anywhere
        config.data = str(Path(config.data).expanduser().absolute())
    if chosen.resume is not None:
        _refuse_changes(before, flatten(settings_of(config)))
    return config, _Options(settings.overwrite, settings.resume)


def pretrain(config: PretrainConfig, resume: str | None = None, overwrite: bool = False) -> int:
    """Carry out a checked config; returns the exit code."""
    from csml.data.open import open_data
    from csml.training.build import queue_length
    from csml.training.interruption import Interrupted
    from csml.training.pretraining import Pretraining
    from csml.training.run_directory import log_to, new_run, open_run, write_facts

    data = open_data(config.data, config.images)
    images = len(data.train)
    check_against_data(config, images)
    run = open_run(resume) if resume else new_run(config.out, _run_name(config), overwrite)
    handler = log_to(run.log)
    try:
        if resume is None:
            run.config.write_text(yaml.safe_dump(settings_of(config), sort_keys=False))
        log.info("run directory %s", run.root)
        for note in data.notes:
            log.info(note)
        _warn_about_queue(queue_length(config, images), images, config)
        _warn_about_neighbors(config)
        training = Pretraining(config, data, run)
        facts = {
            "images": images,
            "device": str(training.device),
            "precision": training.fabric.strategy.precision.precision,
        }
        if resume:
            training.resume()
        else:
            write_facts(run, facts)
        training.fit()
        log.info(_how_to_use(run.root, labeled=data.val is not None))
        return 0
    except Interrupted as stop:
        log.warning(str(stop))
        return stop.exit_code
    except CsmlError as error:
        handler.handle(log.makeRecord(log.name, logging.ERROR, __file__, 0, str(error), (), None))
        raise
    finally:
        log.removeHandler(handler)
        handler.close()


def settings_of(config: PretrainConfig) -> dict[str, Any]:
    """Plain nested values, tuples as lists: what YAML can hold."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return list(value) if isinstance(value, tuple) else value

    settings: dict[str, Any] = plain(asdict(config))
    return settings


def _parser() -> SettingsParser:
    summary = "Learn a backbone from images without labels; where labels exist they only measure."
    parser = SettingsParser("pretrain", PretrainConfig, summary, _USAGE)
    parser.add_argument("--preset", type=str | None, default=None, help=f"Named settings: {', '.join(PRESETS)}.")
    parser.add_argument("--resume", type=str | None, default=None, help="A run directory to continue exactly.")
    parser.add_argument(
        "--overwrite", type=bool, default=False, help="Delete what is in --out first.", nargs="?", const=True
    )
    return parser


def _settings_of(run: str) -> dict[str, Any]:
    file = Path(run).expanduser() / "config.yaml"
    if not file.exists():
        raise CsmlError(f"resume: {run} is not a run directory, it has no config.yaml")
    return flatten(yaml.safe_load(file.read_text("utf-8")))


def _refuse_changes(before: dict[str, Any], now: dict[str, Any]) -> None:
    for key, value in now.items():
        if before.get(key) != value and not key.startswith(_MAY_CHANGE):
            raise CsmlError(f"{key}: the run was started with {before.get(key)}, so it cannot be resumed with {value}")


def _run_name(config: PretrainConfig) -> str:
    method = "csml" if config.views.cross_sample else "moco-v2"
    return f"{Path(config.data).name}-{method}"


def _warn_about_queue(length: int, images: int, config: PretrainConfig) -> None:
    if length >= images and not config.contrast.mask_known:
        log.warning(
            "contrast.queue_length: %d is as long as the data set (%d images), so that an image's own past key becomes "
            "its negative; choose less than half of it, or --contrast.mask_known true",
            length,
            images,
        )


def _warn_about_neighbors(config: PretrainConfig) -> None:
    settings = config.neighbors
    if config.views.cross_sample and settings.k > 0 and settings.warmup_epochs >= config.epochs:
        log.warning(
            "neighbors.warmup_epochs: %d, so that a run of %d epochs never uses a neighbour; choose less",
            settings.warmup_epochs,
            config.epochs,
        )


def _how_to_use(root: Path, labeled: bool) -> str:
    lines = [
        "",
        "the backbone, in Python:",
        "    import csml",
        f"    backbone = csml.load_backbone({str(root)!r})",
        "    features = backbone(images)  # (B, 3, H, W), normalised → (B, C)",
    ]
    if labeled:
        lines += [
            "judge it:",
            *(f"    {program()} {command} {shlex.quote(str(root))}" for command in ("knn", "linear")),
        ]
    return "\n".join(lines)
