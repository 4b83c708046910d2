"""Command lines: every setting is an option, and mistakes are one line."""

import subprocess
import sys
from typing import Any

import pytest

import csml.config as config_package
from csml.cli.options import Options, Positional
from csml.config import (
    COMMAND_LINE,
    PRESETS,
    DetectConfig,
    Layer,
    LinearConfig,
    NeighborsOfConfig,
    PretrainConfig,
    RunConfig,
    Settings,
    configure,
)
from csml.config.build import leaves
from csml.config.documentation import documentation
from csml.errors import CsmlError

PRETRAIN = Options(
    "pretrain",
    PretrainConfig,
    "Learn a backbone.",
    "csml pretrain [--preset NAME] [--KEY VALUE …]",
    presets=PRESETS,
    resume=True,
    overwrite=True,
)
NEIGHBORS = Options(
    "neighbors",
    NeighborsOfConfig,
    "Find neighbours.",
    "csml neighbors WEIGHTS IMAGE …",
    positional=(Positional("weights", "A run."), Positional("queries", "Image files.", many=True)),
)
COMMANDS = [
    kind
    for name, kind in vars(config_package).items()
    if isinstance(kind, type) and issubclass(kind, Settings) and (name.endswith("Config"))
]


def given(*words: str) -> dict[str, Any]:
    return PRETRAIN.parse(list(words)).settings


def refused(options: Options, *words: str) -> str:
    with pytest.raises(CsmlError) as caught:
        options.parse(list(words))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_only_what_was_given_is_there() -> None:
    assert given() == {}
    assert given("--epochs", "3", "--images.size=64") == {"epochs": 3, "images.size": 64}


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (["--batch-size", "4"], {"batch_size": 4}),
        (["--batch_size", "4"], {"batch_size": 4}),
        (["--epochs", "1", "--epochs", "2"], {"epochs": 2}),
        (["--out", "001"], {"out": "001"}),
        (["--out=true"], {"out": "true"}),
        (["--out", "a=b"], {"out": "a=b"}),
        (["--out", "null"], {"out": None}),
        (["--data", "null"], {"data": "null"}),
        (["--data=--odd"], {"data": "--odd"}),
        (["--seed", "010"], {"seed": 10}),
        (["--seed", "1:30"], {"seed": "1:30"}),
        (["--neighbors.k", "-1"], {"neighbors.k": -1}),
        (["--optimizer.lr_per_256", "-1e-4"], {"optimizer.lr_per_256": "-1e-4"}),
        (["--model.stages", "[3, 4]"], {"model.stages": [3, 4]}),
        (["--model.stages", "[3"], {"model.stages": "[3"}),
        (["--model.hidden", "null"], {"model.hidden": None}),
        (["--model.hidden="], {"model.hidden": ""}),
        (["--model.narrowing", "4"], {"model.narrowing": 4}),
        (["--views.mix", "none"], {"views.mix": "none"}),
        (["--views.symmetric"], {"views.symmetric": True}),
        (["--views.symmetric", "--epochs", "2"], {"views.symmetric": True, "epochs": 2}),
        (["--views.symmetric", "no"], {"views.symmetric": False}),
        (["--views.symmetric=false"], {"views.symmetric": False}),
        (["--monitor.tensorboard"], {"monitor.tensorboard": True}),
        (["--monitor.tensorboard", "null"], {"monitor.tensorboard": None}),
    ],
)
def test_words_become_values_of_the_type_of_the_setting(words: list[str], settings: dict[str, Any]) -> None:
    assert given(*words) == settings


def test_options_beside_the_settings() -> None:
    parsed = PRETRAIN.parse(
        ["--preset", "demo", "--config", "a.yaml", "--resume", "runs/1", "--overwrite", "--print-config"]
    )
    assert (parsed.preset, parsed.config, parsed.resume) == ("demo", "a.yaml", "runs/1")
    assert parsed.overwrite and parsed.print_config and not parsed.settings
    assert not PRETRAIN.parse(["--overwrite", "false"]).overwrite
    linear = Options("linear", LinearConfig, "", "csml linear WEIGHTS", flags={"resume": "Continue."})
    assert linear.parse(["--resume"]).flags == {"resume"}


def test_positional_arguments_may_stand_anywhere() -> None:
    parsed = NEIGHBORS.parse(["run", "--k", "3", "a.png", "--sheet", "s.png", "b.png", "--", "--c.png"])
    assert parsed.positional == {"weights": "run", "queries": ["a.png", "b.png", "--c.png"]}
    assert parsed.settings == {"k": 3, "sheet": "s.png"}


def test_lists_of_names_may_be_a_single_name() -> None:
    detect = Options("detect", DetectConfig, "", "csml detect")
    parsed = detect.parse(["--train", "VOC2007/train", "--test", '["a", "b"]', "--voc_points", "11"])
    assert parsed.settings == {"train": "VOC2007/train", "test": ["a", "b"], "voc_points": "11"}


@pytest.mark.parametrize(
    ("options", "words", "message"),
    [
        (
            PRETRAIN,
            ["--contrast.temprature", "0.1"],
            "unknown option --contrast.temprature; did you mean --contrast.temperature?",
        ),
        (PRETRAIN, ["--temperature=0.1"], "unknown option --temperature; did you mean --contrast.temperature?"),
        (PRETRAIN, ["--presett", "demo"], "unknown option --presett; did you mean --preset?"),
        (PRETRAIN, ["--xyz"], "unknown option --xyz; see csml pretrain --help"),
        (PRETRAIN, ["-v"], "unknown option -v; see csml pretrain --help"),
        (PRETRAIN, ["--images", "5"], "images: a section; give one of its settings, such as --images.size"),
        (PRETRAIN, ["--epochs"], "epochs: expected a whole number after --epochs"),
        (PRETRAIN, ["--epochs", "--seed", "1"], "epochs: expected a whole number after --epochs"),
        (PRETRAIN, ["folder"], "unexpected argument folder; did you mean --data folder?"),
        (PRETRAIN, ["--overwrite=maybe"], "overwrite: expected true or false, got maybe"),
        (PRETRAIN, ["--config="], "config: expected text, got ''"),
        (NEIGHBORS, [], "weights: missing; usage: csml neighbors WEIGHTS IMAGE …"),
        (NEIGHBORS, ["run"], "queries: missing; usage: csml neighbors"),
        (NEIGHBORS, ["run", "a", "--resume", "x"], "unknown option --resume"),
    ],
)
def test_mistakes_are_one_line(options: Options, words: list[str], message: str) -> None:
    assert refused(options, *words).startswith(message)


def test_a_word_of_the_wrong_type_is_refused_by_the_schema() -> None:
    with pytest.raises(CsmlError, match=r"^epochs: expected a whole number, got many$"):
        configure(PretrainConfig, Layer(given("--epochs", "many"), COMMAND_LINE))


def test_help_comes_from_the_docstrings_bounds_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        PRETRAIN.parse(["--nonsense", "--help", "all"])
    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("usage: csml pretrain")
    assert "Halve it if the loss diverges. (above 0; default: that of the preset, otherwise 0.03)" in text
    assert (
        "--images.size N Side of the square crops that the network learns from, in pixels. (at least 8 pixels" in text
    )
    assert "--views.mix {cutmix,mixup,none}" in text
    assert "imagenet-800ep-csml-simsiam" in text


@pytest.mark.parametrize("schema", COMMANDS, ids=lambda kind: kind.__name__)
def test_every_setting_of_every_command_is_documented(schema: type[Any]) -> None:
    for leaf in leaves(schema).values():
        assert documentation(leaf.owner)[leaf.key.rpartition(".")[2]].endswith((".", ")")), leaf.key
    assert all(f"--{key}" in Options("x", schema, "", "csml x").help("all") for key in leaves(schema))


def test_parsing_does_not_import_torch_or_numpy() -> None:
    script = """
import sys
from csml.cli.options import Options
from csml.config import PretrainConfig, configure
configure(PretrainConfig, Options("pretrain", PretrainConfig, "", "").parse(["--epochs", "3"]).settings)
assert not {"torch", "numpy", "PIL"} & set(sys.modules), "heavy"
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_runs_share_their_options() -> None:
    assert leaves(RunConfig).keys() <= leaves(PretrainConfig).keys()
