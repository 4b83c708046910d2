"""Values as Python, YAML and command lines have them become typed settings."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from csml.config import DetectConfig, PretrainConfig, configure
from csml.errors import CsmlError


@pytest.mark.parametrize(
    ("key", "value", "built"),
    [
        ("epochs", 3, 3),
        ("epochs", np.int64(3), 3),
        ("optimizer.lr_per_256", 1, 1.0),
        ("optimizer.lr_per_256", "1e-4", 1e-4),
        ("optimizer.lr_per_256", np.float64(0.5), 0.5),
        ("data", "folder", "folder"),
        ("data", Path("some/folder"), "some/folder"),
        ("out", None, None),
        ("out", "001", "001"),
        ("views.cross_sample", True, True),
        ("views.mix", "mixup", "mixup"),
        ("model.narrowing", 4, 4),
        ("model.narrowing", None, None),
        ("model.stages", [3, 4], (3, 4)),
        ("model.stages", (4,), (4,)),
        ("augmentation.crop_scale", [0.5, 1], (0.5, 1.0)),
        ("augmentation.crop_scale", None, None),
        ("monitor.tensorboard", None, None),
        ("monitor.tensorboard", False, False),
    ],
)
def test_values_are_converted_to_the_type_of_the_field(key: str, value: Any, built: Any) -> None:
    found: Any = configure(PretrainConfig, {key: value})
    for name in key.split("."):
        found = getattr(found, name)
    assert found == built and type(found) is type(built)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("epochs", "many", "epochs: expected a whole number, got many"),
        ("epochs", 1.5, "epochs: expected a whole number, got 1.5"),
        ("epochs", 2.0, "epochs: expected a whole number, got 2"),
        ("epochs", True, "epochs: expected a whole number, got true"),
        ("epochs", None, "epochs: expected a whole number, got null"),
        ("epochs", "", "epochs: expected a whole number, got ''"),
        ("epochs", {"a": 1}, "epochs: expected a whole number, got {'a': 1}"),
        ("optimizer.lr_per_256", "fast", "optimizer.lr_per_256: expected a number, got fast"),
        ("optimizer.lr_per_256", False, "optimizer.lr_per_256: expected a number, got false"),
        ("optimizer.lr_per_256", 10**400, "optimizer.lr_per_256: expected a number, got a number of about"),
        ("optimizer.lr_per_256", "nan", "optimizer.lr_per_256: above 0, not nan"),
        ("optimizer.lr_per_256", float("inf"), "optimizer.lr_per_256: above 0, not inf"),
        ("data", 5, "data: expected text in quotes, got 5"),
        ("out", datetime.date(2024, 1, 1), "out: expected text in quotes, got datetime.date"),
        ("data", "", "data: expected text, got ''"),
        ("data", "a\0b", "data: expected text, got 'a\\x00b'"),
        ("data", None, "data: expected text, got null"),
        ("views.cross_sample", 1, "views.cross_sample: expected true or false, got 1"),
        ("views.cross_sample", "yes", "views.cross_sample: expected true or false, got yes"),
        ("views.mix", "blend", "views.mix: expected one of cutmix, mixup, none, got blend"),
        ("views.mix", False, "views.mix: expected one of cutmix, mixup, none, got false"),
        ("model.narrowing", 3, "model.narrowing: expected one of 1, 2, 4, got 3"),
        ("model.narrowing", True, "model.narrowing: expected one of 1, 2, 4, got true"),
        ("model.stages", 4, "model.stages: expected a list such as [3, 4], got 4"),
        ("model.stages", "[3, 4]", "model.stages: expected a list such as [3, 4], got [3, 4]"),
        ("model.stages", [3, "x"], "model.stages: expected a list such as [3, 4], got [3, 'x']"),
        ("augmentation.crop_scale", [0.5], "augmentation.crop_scale: expected two numbers such as [0.2, 1], got [0.5]"),
        ("augmentation.crop_scale", 0.5, "augmentation.crop_scale: expected two numbers such as [0.2, 1], got 0.5"),
    ],
)
def test_a_value_of_another_type_is_refused_in_one_line(key: str, value: Any, message: str) -> None:
    with pytest.raises(CsmlError) as caught:
        configure(PretrainConfig, {key: value})
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_single_name_is_a_list_of_one() -> None:
    config = configure(DetectConfig, {"data": "voc", "train": "VOC2007/trainval", "test": ["a", Path("b")]})
    assert (config.train, config.test) == (("VOC2007/trainval",), ("a", "b"))


def test_a_number_among_names_may_lack_its_quotes_in_yaml() -> None:
    assert configure(DetectConfig, {"voc_points": 11}).voc_points == "11"
