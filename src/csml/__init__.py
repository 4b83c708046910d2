"""csml: learn visual representations from unlabelled images by cross-sample, multi-level contrast (CsMl, ICCV 2021)."""

import importlib
from typing import TYPE_CHECKING, Any

from csml.amx_guard import avoid_incomplete_amx
from csml.errors import CsmlError
from csml.release import VERSION as __version__

if TYPE_CHECKING:
    from csml.ablations.ablate import ablate as ablate
    from csml.ablations.tables import tables as tables
    from csml.api.checking import check as check
    from csml.api.classifiers import finetune as finetune
    from csml.api.classifiers import supervised as supervised
    from csml.api.detecting import detect as detect
    from csml.api.doctor import doctor as doctor
    from csml.api.embedding import embed as embed
    from csml.api.evaluating import knn as knn
    from csml.api.evaluating import linear as linear
    from csml.api.exporting import export as export
    from csml.api.exporting import pack as pack
    from csml.api.mining import mine as mine
    from csml.api.neighbors import neighbors as neighbors
    from csml.api.predicting import predict as predict
    from csml.api.presets import presets as presets
    from csml.api.pretraining import pretrain as pretrain
    from csml.api.run import Run as Run
    from csml.api.scenes import scenes as scenes
    from csml.api.scoring import score as score
    from csml.api.selecting import select as select
    from csml.demonstration import demo as demo
    from csml.explorer.explore import explore as explore
    from csml.reporting.report import report as report
    from csml.runs.interruption import Interrupted as Interrupted
    from csml.weights import load_backbone as load_backbone
    from csml.weights import load_classifier as load_classifier
    from csml.weights import load_detector as load_detector

_PUBLIC = {
    "ablate": "csml.ablations.ablate",
    "check": "csml.api.checking",
    "demo": "csml.demonstration",
    "detect": "csml.api.detecting",
    "doctor": "csml.api.doctor",
    "embed": "csml.api.embedding",
    "explore": "csml.explorer.explore",
    "export": "csml.api.exporting",
    "finetune": "csml.api.classifiers",
    "Interrupted": "csml.runs.interruption",
    "knn": "csml.api.evaluating",
    "linear": "csml.api.evaluating",
    "load_backbone": "csml.weights",
    "load_classifier": "csml.weights",
    "load_detector": "csml.weights",
    "mine": "csml.api.mining",
    "neighbors": "csml.api.neighbors",
    "pack": "csml.api.exporting",
    "predict": "csml.api.predicting",
    "presets": "csml.api.presets",
    "pretrain": "csml.api.pretraining",
    "report": "csml.reporting.report",
    "Run": "csml.api.run",
    "scenes": "csml.api.scenes",
    "score": "csml.api.scoring",
    "select": "csml.api.selecting",
    "supervised": "csml.api.classifiers",
    "tables": "csml.ablations.tables",
}
"""The module of each public name. Names are imported on first use, so that `import csml` does not wait for torch."""

__all__ = ["CsmlError", "__version__", *_PUBLIC]

avoid_incomplete_amx()


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'csml' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
