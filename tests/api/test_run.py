"""A run directory that version 0.1 of csml has made is used by today's verbs."""

import shutil
from pathlib import Path

import pytest

import csml
from csml.api.table import Table
from csml.errors import CsmlError

OLD = Path(__file__).parents[1] / "runs" / "made-by-0.1" / "pretrain"


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> csml.Run:
    copy = tmp_path_factory.mktemp("old") / "pretrain"
    shutil.copytree(OLD, copy)
    return csml.Run(copy)


def test_it_tells_what_it_is(old: csml.Run) -> None:
    assert old.verb == "pretrain"
    assert (old.config.framework, old.config.model.backbone, old.config.neighbors.k) == ("contrast", "nano", 10)
    assert old.metrics["epoch"] == [1, 2] and len(old.metrics[0]) > 10
    assert old.results["knn"]["accuracy"] == {"20": 0.1, "200": pytest.approx(1 / 15)}


def test_it_is_judged_as_it_was(old: csml.Run) -> None:
    before = old.results
    assert old.knn().accuracy == {int(k): v for k, v in before["knn"]["accuracy"].items()}
    found = old.linear(preset="demo", augment=False, epochs=5, milestones=[3])
    # Rounding may move one of 60 test images on another CPU.
    assert found.top1[4] == pytest.approx(before["linear"]["stages"]["4"]["top1"], abs=1.1 / 60)
    assert set(found.per_class[4]) == set(before["linear"]["stages"]["4"]["per_class"])


def test_it_is_fine_tuned_mined_exported_and_reported(old: csml.Run, tmp_path: Path) -> None:
    quick = {"preset": "demo", "epochs": 1, "monitor": {"tensorboard": False}}
    tuned = old.finetune(fraction=0.2, out=tmp_path / "tuned", **quick)
    assert tuned.config.weights == str(old.path) and tuned.config.model.backbone == "nano"
    mined = csml.mine(tuned, out=tmp_path / "mined", max_entropy=9, **quick)
    assert mined.results["mine"]["mined"]["kept"] > 0
    net = csml.load_backbone(old.export("safetensors").path)
    assert sum(p.numel() for p in net.parameters()) == sum(p.numel() for p in old.backbone().parameters())
    page = csml.report([old, tuned], output=tmp_path / "report.html", points=60, tests=30)
    assert "pretrain" in page.read_text()


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CsmlError, match="is not a run directory"):
        csml.Run(tmp_path)


def test_a_table_has_rows_and_columns() -> None:
    table = Table([{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25, "knn20": 0.1}])
    assert table.columns == ["epoch", "loss", "knn20"]
    assert (len(table), table[1]["loss"], table["knn20"]) == (2, 0.25, [None, 0.1])
    assert str(table).splitlines()[1].split() == ["1", "0.5"]
    assert table._repr_html_().count("<tr>") == 3
    with pytest.raises(KeyError, match="there are epoch, loss, knn20"):
        table["lose"]
