"""Ablations: every run is trained once, whoever else runs or is killed, and ends in the same table."""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from ablation_file import FILE, written
from conftest import csml
from csml.ablations.ablate import ablate
from csml.cli import show
from started import Started


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Never interrupted."""
    folder = tmp_path_factory.mktemp("ablation")
    done = csml("ablate", written(folder), "--out", str(folder / "out"))
    assert done.returncode == 0, done.stderr
    assert "With and without a mixture" in done.stdout
    return folder / "out"


def test_variations_are_not_compared_with_baselines(finished: Path) -> None:
    assert list(finished.rglob("knn.json")) and not list(finished.rglob("baselines.json"))
    for file in (*finished.rglob("knn.json"), *finished.rglob("linear.json")):
        assert "baselines" not in json.loads(file.read_text())


def accuracies(out: Path) -> list[dict[str, float]]:
    runs = json.loads((out / "results.json").read_text())["runs"]
    return [{key: value for key, value in run.items() if key != "minutes"} for run in runs]


def test_every_variation_is_trained_and_judged_at_every_seed(finished: Path) -> None:
    runs = accuracies(finished)
    assert [(run["variation"], run["seed"]) for run in runs] == [
        ("MoCo v2", 0), ("q_a + q_p", 0), ("MoCo v2", 1), ("q_a + q_p", 1),
    ]  # fmt: skip
    assert all(0 <= run["5-NN"] <= 1 and 0 <= run["linear, stage 4"] <= 1 for run in runs)
    assert "purity of Ω" in runs[1] and "purity of Ω" not in runs[0]
    for name in ("table.md", "runs.csv", "plot.png", "plot.svg"):
        assert (finished / name).stat().st_size > 100
    assert "±" in (finished / "table.md").read_text()
    assert len((finished / "runs.csv").read_text().splitlines()) == 5
    assert (finished / "moco-v2" / "seed-1" / "backbone.safetensors").exists()


def test_killed_in_the_middle_it_continues_to_the_same_table(tmp_path: Path, finished: Path) -> None:
    out = tmp_path / "out"
    file = written(tmp_path)
    process = Started("ablate", file, "--out", str(out))
    second = out / "q_a+q_p" / "seed-0"
    process.wait_for(second / "checkpoints" / "epoch-0001-step-000001.pt")
    process.kill()
    kept = (out / "moco-v2" / "seed-0" / "linear.json").stat().st_mtime_ns

    process = Started("ablate", file, "--out", str(out))  # a cluster's polite signal, in the third run
    process.wait_for(out / "moco-v2" / "seed-1" / "checkpoints" / "epoch-0000-step-000001.pt")
    process.send_signal(signal.SIGTERM)
    error = process.wait()
    assert process.returncode == 128 + signal.SIGTERM, error
    assert f"ablate {file} --out {out}" in error
    assert "Traceback" not in error
    assert "resumed from" in error  # the run that was killed

    done = csml("ablate", file, "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert accuracies(out) == accuracies(finished)
    assert (out / "moco-v2" / "seed-0" / "linear.json").stat().st_mtime_ns == kept


def test_two_at_once_share_the_runs_and_write_the_same_table(tmp_path: Path, finished: Path) -> None:
    out = tmp_path / "out"
    both = [Started("ablate", written(tmp_path), "--out", str(out)) for _ in range(2)]
    told = [process.wait() for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    lines = [line for printed in told for line in printed.splitlines()]
    assert len([line for line in lines if re.match(r"\[./4\]", line) and "done" not in line]) == 4
    assert all(printed.count("±") for printed in told)  # both have seen all seeds
    assert accuracies(out) == accuracies(finished)


def test_a_finished_ablation_is_only_read(finished: Path, tmp_path: Path) -> None:
    runs = [path for path in finished.rglob("*") if path.is_file() and path.parent != finished]
    before = {path: path.stat().st_mtime_ns for path in runs}
    done = csml("ablate", written(tmp_path), "--out", str(finished))
    assert done.returncode == 0, done.stderr
    assert "4 of them done" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in runs} == before


def test_runs_made_with_other_settings_are_refused_by_name(finished: Path, tmp_path: Path) -> None:
    file = written(tmp_path, FILE.replace("k: 3", "k: 4"))
    done = csml("ablate", file, "--out", str(finished))
    assert done.returncode == 2
    assert "neighbors.k 3" in done.stderr
    assert "--out" in done.stderr
    assert done.stderr.count("\n") == 1


def test_judging_anew_with_other_settings_needs_no_training(finished: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    os.utime(copy)
    file = written(tmp_path, FILE.replace("k: [5]", "k: [3]"))
    done = csml("ablate", file, "--out", str(copy))
    assert done.returncode == 0, done.stderr
    assert "images/s" not in done.stderr  # no epoch was trained
    assert all("3-NN" in run and "5-NN" not in run for run in accuracies(copy))


def test_a_run_that_stands_in_two_tables_is_trained_once(tmp_path: Path) -> None:
    text = FILE.replace("seeds: [0, 1]", "seeds: [0]")
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text(text)
    two.write_text(text.replace("MoCo v2:", "k = 2: {neighbors.k: 2}\n  baseline:"))
    shared = str(tmp_path / "runs")
    first = csml("ablate", str(one), "--out", str(tmp_path / "one"), "--runs", shared)
    assert first.returncode == 0, first.stderr
    second = csml("ablate", str(two), "--out", str(tmp_path / "two"), "--runs", shared)
    assert second.returncode == 0, second.stderr
    assert "3 runs, 2 of them done" in second.stderr
    assert len(list((tmp_path / "runs").glob("[!.]*"))) == 3
    ours = {run.pop("variation"): run for run in accuracies(tmp_path / "one")}
    theirs = {run.pop("variation"): run for run in accuracies(tmp_path / "two")}
    assert theirs["baseline"] == ours["MoCo v2"] and theirs["q_a + q_p"] == ours["q_a + q_p"]


def test_a_table_from_elsewhere_is_taken_over_and_only_the_rest_is_run(finished: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    table = json.loads((finished / "results.json").read_text())
    for part in ("runs", "history"):
        table[part] = [run for run in table[part] if run["seed"] == 0]
    (elsewhere / "results.json").write_text(json.dumps(table))
    out, file = tmp_path / "out", written(tmp_path)
    done = csml("ablate", file, "--out", str(out), "--earlier", f"['{elsewhere}']")
    assert done.returncode == 0, done.stderr
    assert "4 runs, 2 of them done" in done.stderr
    assert not list(out.rglob("seed-0")) and len(list(out.rglob("seed-1"))) == 2
    assert accuracies(out) == accuracies(finished)
    assert json.loads((out / "results.json").read_text())["history"] == table["history"] + [
        run for run in json.loads((finished / "results.json").read_text())["history"] if run["seed"] == 1
    ]

    everything = csml("ablate", file, "--out", str(tmp_path / "again"), "--earlier", f"['{out}']")
    assert everything.returncode == 0, everything.stderr
    assert accuracies(tmp_path / "again") == accuracies(finished)
    assert not list((tmp_path / "again").glob("*/"))

    for change, told in ((("k: 3", "k: 4"), "made otherwise"), (("epochs: 2", "epochs: 1"), "2 epochs")):
        other = csml("ablate", written(tmp_path, FILE.replace(*change)), "--earlier", f"['{out}']")
        assert other.returncode == 2 and other.stderr.count("\n") == 1, other.stderr
        assert "earlier: " in other.stderr and told in other.stderr
    (elsewhere / "results.json").write_text("{}")
    for place, told in ((elsewhere, "not of csml ablate"), (tmp_path / "nowhere", "there is no")):
        other = csml("ablate", file, "--earlier", f"['{place}']")
        assert other.returncode == 2 and told in other.stderr, other.stderr


def test_tuning_judges_on_validation_images_and_is_not_mixed_with_reports(finished: Path, tmp_path: Path) -> None:
    file, out = written(tmp_path, FILE.replace("seeds: [0, 1]", "seeds: [0]")), tmp_path / "tuned"
    done = csml("ablate", file, "--tune", "true", "--out", str(out))
    assert done.returncode == 0, done.stderr
    judged = [json.loads(path.read_text()) for path in (*out.rglob("knn.json"), *out.rglob("linear.json"))]
    assert len(judged) == 4 and all(result["tested"] == 40 for result in judged)  # a fifth of 200; 60 are unseen
    assert "evaluated on validation images" in json.loads((out / "results.json").read_text())["setting"]

    for words in (["--out", str(out)], ["--out", str(tmp_path / "new"), "--earlier", f"['{out}']"]):
        mixed = csml("ablate", file, *words)
        assert mixed.returncode == 2 and mixed.stderr.count("\n") == 1, mixed.stderr
    mixed = csml("ablate", file, "--tune", "true", "--out", str(finished))
    assert mixed.returncode == 2 and "images.test" in mixed.stderr


def test_tables_are_put_on_one_page_with_what_made_them(finished: Path, tmp_path: Path) -> None:
    output = tmp_path / "docs" / "evidence.md"
    done = csml("tables", str(finished), str(finished), "--output", str(output), "--title", "Evidence")
    assert done.returncode == 0, done.stderr
    page = output.read_text()
    assert page.startswith("# Evidence\n")
    assert [line for line in page.splitlines() if line.startswith("## ")] == [
        "## Table 1: With and without a mixture",
        "## Table 2: With and without a mixture",
    ]
    table = [line for line in (finished / "table.md").read_text().splitlines() if line.startswith("|")]
    assert all(line in page for line in table)
    assert "csml ablate" in page and "Seeds 0, 1" in page and "minutes" in page
    assert (output.parent / "evidence" / "out.png").exists() and "](evidence/out.png)" in page
    missing = csml("tables", str(tmp_path), "--output", str(output))
    assert missing.returncode == 2 and "results.json" in missing.stderr


def test_one_failing_run_does_not_cost_the_others(tmp_path: Path) -> None:
    text = FILE.replace("seeds: [0, 1]", "seeds: [0]").replace(
        "  MoCo v2: {twin: moco-v2}", "  broken: {optimizer.lr_per_256: 1.0e+6}"
    )
    result = ablate(written(tmp_path, text), out=str(tmp_path / "out"))
    assert show.ablate(result) == 1  # the exit code
    assert {title: done for title, _, done in result.runs} == {"q_a + q_p, seed 0": True, "broken, seed 0": False}
    assert "non-finite" in result.failed["broken, seed 0"]
    assert [run["variation"] for run in accuracies(tmp_path / "out")] == ["q_a + q_p"]
    assert "non-finite" in (tmp_path / "out" / "table.md").read_text()


def test_few_labels_judge_every_run_and_a_network_from_scratch(tmp_path: Path) -> None:
    text = FILE.replace("seeds: [0, 1]", "seeds: [0]").replace("epochs: 2", "epochs: 1")
    text += "few_labels: {fractions: [0.1, 0.5], finetune: {epochs: 1}, mine: {max_entropy: 3, epochs: 1}, "
    quick = tmp_path / "quick.yaml"
    quick.write_text(text + "scratch: {epochs: 1, batch_size: 10}}\npaper: {MoCo v2: 67.5}\n")
    done = csml("ablate", str(quick), "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    runs = {run["variation"]: run for run in accuracies(tmp_path / "out")}
    assert list(runs) == ["MoCo v2", "q_a + q_p", "labels alone"]
    for share in ("10 %", "50 %"):
        assert {f"fine-tuned, {share}", f"mined, {share}"} <= runs["MoCo v2"].keys()
        assert f"labels alone, {share}" in runs["labels alone"]
    header, _, first, *_ = [line for line in (tmp_path / "out" / "table.md").read_text().splitlines() if "|" in line]
    assert header.split("|")[-2].strip() == "paper" and first.split("|")[-2].strip() == "67.5"
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.safetensors")}
    assert csml("ablate", str(quick), "--out", str(tmp_path / "out")).returncode == 0
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.safetensors")}
    quick.write_text(quick.read_text().replace("max_entropy: 3", "max_entropy: 2"))
    done = csml("ablate", str(quick), "--out", str(tmp_path / "out"))
    assert done.returncode == 1 and "was made with max_entropy 3.0, and it is 2.0 now" in done.stderr
