"""Run directories: every path lies inside, rounds and verbs are found, metrics survive a kill."""

import ast
import json
import logging
import os
import pickle
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import yaml

from csml.config import DetectConfig, FinetuneConfig, MineConfig, PretrainConfig, SupervisedConfig, configure
from csml.errors import CsmlError
from csml.files import atomic_write, save_array
from csml.runs import metrics
from csml.runs.checkpoint import save_checkpoint
from csml.runs.directory import RESULTS, RunDirectory
from csml.runs.interruption import Interrupted, StopSignals
from csml.runs.metadata import read_metadata, read_result, verb_of, write_metadata
from csml.runs.metrics import JsonLines, read_metrics
from csml.runs.opening import log_to, new_run, open_run
from csml.runs.run_of_weights import directory_of
from csml.runs.settings import first_difference, read_settings, write_config


def test_every_path_lies_inside_and_no_two_are_the_same(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    properties = [name for name, value in vars(RunDirectory).items() if isinstance(value, property)]
    paths = [getattr(run, name) for name in properties if name != "resumed"]
    paths += [run.neighbors(3), run.round(1), run.few_labels(0.1, "mine"), run.index("key"), run.explore_map("key")]
    paths += [run.explore_cache("sizes", "key"), run.explore_tuned(1)]
    paths += [run.result(name) for name in RESULTS]
    found = [path.root if isinstance(path, RunDirectory) else path for path in paths]
    assert len(set(found)) == len(found) > 25
    assert all(path.is_relative_to(tmp_path) and path != tmp_path for path in found)
    assert not any(tmp_path.iterdir())


def test_rounds_come_in_order_and_are_resumed_as_the_run_around_them(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    for number in (10, 2, 1):
        run.round(number).root.mkdir()
    (tmp_path / "round-trip").mkdir()
    assert [each.root.name for each in run.rounds()] == ["round-1", "round-2", "round-10"]
    assert run.round(2).resumed == run.linear.resumed == run.resumed == tmp_path
    assert not run.has_checkpoint()
    save_checkpoint(run.round(2).checkpoints, {}, 0, 1, keep=1)
    assert run.has_checkpoint()


def test_the_neighbour_sets_are_listed_from_the_earliest(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.neighbors(2).parent.mkdir()
    for epoch in (12, 2):
        run.neighbors(epoch).touch()
    assert run.neighbor_files() == [run.neighbors(2), run.neighbors(12)]


def test_weights_name_their_run_directory(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.backbone.touch()
    assert directory_of(tmp_path) == directory_of(run.backbone) == run
    with pytest.raises(CsmlError, match=r"has no config\.yaml"):
        open_run(tmp_path)


VERBS = {
    "pretrain": PretrainConfig,
    "supervised": SupervisedConfig,
    "finetune": FinetuneConfig,
    "mine": MineConfig,
    "detect": DetectConfig,
}


@pytest.mark.parametrize("verb", VERBS)
def test_run_json_says_which_verb_made_a_run_and_older_runs_tell_by_their_settings(tmp_path: Path, verb: str) -> None:
    run = RunDirectory(tmp_path)
    write_config(run, VERBS[verb]())
    assert verb_of(tmp_path) == verb  # without run.json: mining of before
    run.facts.write_text(json.dumps({"command": ["csml", "demo"]}))
    assert verb_of(tmp_path) == verb
    write_metadata(run, "supervised", {"images": 3})
    assert verb_of(tmp_path) == "supervised"
    assert read_metadata(tmp_path)["images"] == 3
    assert yaml.safe_load(run.config.read_text())["data"] == "synthetic"


def test_results_are_read_and_a_broken_one_is_named(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert read_result(run, "knn") is None
    run.result("knn").write_text("{")
    with pytest.raises(CsmlError, match=r"knn\.json cannot be read"):
        read_result(run, "knn")


def test_metrics_are_cut_off_where_the_checkpoint_is_and_never_rewritten(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    writer = JsonLines(run.metrics, 0)
    for epoch in (1, 2, 3):
        writer.write({"epoch": epoch, "loss": 1 / epoch})
    with run.metrics.open("a") as file:
        file.write('{"epoch": 4, "lo')  # a kill in the middle of a line
    before, place = run.metrics.read_bytes(), run.metrics.stat().st_ino
    JsonLines(run.metrics, 2)
    assert before.startswith(run.metrics.read_bytes()) and run.metrics.stat().st_ino == place
    JsonLines(run.metrics, 2).write({"epoch": 3, "loss": 7.0})
    assert [record["epoch"] for record in read_metrics(run.metrics)] == [1, 2, 3]
    assert read_metrics(run.metrics)[-1]["loss"] == 7.0


DAMAGE = {
    "no JSON": b"nonsense", "no UTF-8": b"\xff\xfe", "a list": b"[1]",
    "no epoch": b"{}", "epoch is text": b'{"epoch": "1"}',
    "deep": b"[" * 200_000, "5 000 digits": b'{"epoch": ' + b"9" * 5000 + b"}", "nothing": b"", "zeros": b"\0" * 100,
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_lines_of_metrics_are_passed_over_and_stay(tmp_path: Path, damage: bytes) -> None:
    run = RunDirectory(tmp_path)
    run.metrics.write_bytes(b'{"epoch": 1}\n' + damage + b'\n{"epoch": 2}\n{"epoch": 3}')
    assert [record["epoch"] for record in read_metrics(run.metrics)] == [1, 2, 3]
    JsonLines(run.metrics, 3).write({"epoch": 4})
    assert [record["epoch"] for record in read_metrics(run.metrics)] == [1, 2, 3, 4]
    assert damage in run.metrics.read_bytes()


def test_a_run_killed_while_it_wrote_its_settings_can_be_started_again(tmp_path: Path) -> None:
    """The half of config.yaml once made the folder neither free nor a run."""
    with pytest.raises(KeyboardInterrupt), atomic_write(tmp_path / "run" / "config.yaml") as temporary:
        shutil.copyfile(__file__, temporary.with_name(temporary.name.replace("part-", "part-0")))
        raise KeyboardInterrupt
    assert len(list((tmp_path / "run").iterdir())) == 1
    run = new_run(str(tmp_path / "run"), "name", overwrite=False)
    write_config(run, PretrainConfig())
    with pytest.raises(CsmlError, match="exists; choose another"):
        new_run(str(tmp_path / "run"), "name", overwrite=False)


def test_a_log_on_a_full_disk_costs_lines_and_shows_nobody_a_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    handler = log_to(Path("/dev/full"))
    try:
        logging.getLogger("csml").warning("a line")
    finally:
        logging.getLogger("csml").removeHandler(handler)
    assert "Traceback" not in capfd.readouterr().err


def test_a_fold_that_is_done_is_something_to_resume(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert not run.has_checkpoint()
    save_array(run.fold("all", 1).scores, np.zeros((2, 2)))
    assert run.has_checkpoint()


def test_an_interruption_says_where_and_how_to_continue() -> None:
    stop = Interrupted(signal.SIGTERM, "epoch 3/15, step 4", Path("runs/mine"), "pretrain")
    assert str(stop) == "stopped in epoch 3/15, step 4; continue with csml.pretrain(resume='runs/mine')"
    assert (stop.signal, stop.exit_code, stop.run) == (15, 143, Path("runs/mine"))
    assert isinstance(stop, KeyboardInterrupt)
    again = pickle.loads(pickle.dumps(stop))
    assert (str(again), again.where, again.command) == (str(stop), stop.where, stop.command)


def test_a_signal_is_answered_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """Not only when the step ends, which may take minutes."""
    with StopSignals("this step") as outer:
        with StopSignals() as silent:
            os.kill(os.getpid(), signal.SIGTERM)
            assert silent.caught == signal.SIGTERM and not caplog.messages
        assert outer.caught == signal.SIGTERM
    with pytest.raises(KeyboardInterrupt), StopSignals("this step"):
        os.kill(os.getpid(), signal.SIGINT)
        assert caplog.messages == ["stopping after this step; Ctrl-C again stops at once"]
        os.kill(os.getpid(), signal.SIGINT)
    assert len(caplog.messages) == 1


def test_an_older_run_on_a_gpu_is_one_on_cuda(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("epochs: 3\nhardware: {accelerator: gpu}\n")
    assert configure(PretrainConfig, read_settings(tmp_path)).hardware.accelerator == "cuda"


def test_settings_that_an_older_run_did_not_have_are_no_difference() -> None:
    before = {"epochs": 3, "contrast.temperature": 0.2, "hardware.threads": 1}
    assert first_difference(before, {**before, "simsiam.reduction": "mean", "hardware.threads": 2}) is None
    assert first_difference(before, {**before, "contrast.temperature": 0.1}) == "contrast.temperature"
    assert first_difference({**before, "gone": 1}, before) == "gone"


def test_no_other_file_writes_a_name_of_the_tree() -> None:
    """`runs/directory.py` owns the names; docstrings and messages may mention them."""
    source = Path(metrics.__file__).parents[1]
    owned = {path.name for path in _files(RunDirectory(Path("RUN")))} - {"linear", "export", "tensorboard"}
    owners = {source / "runs" / "directory.py", source / "run_files.py"}
    found = [
        f"{path.relative_to(source)}: {node.value}"
        for path in sorted(set(source.rglob("*.py")) - owners)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in owned
    ]
    # The page of a demo lies beside its runs, and the template of the page has the same name.
    assert found == ["demonstration.py: report.html", "reporting/html.py: report.html"]


def _files(run: RunDirectory) -> list[Path]:
    properties = [name for name, value in vars(RunDirectory).items() if isinstance(value, property)]
    found = [getattr(run, name) for name in properties if name != "resumed"]
    return [path.root if isinstance(path, RunDirectory) else path for path in found] + [run.result(n) for n in RESULTS]
