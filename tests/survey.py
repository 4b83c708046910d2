"""How near do tests of learning come to their limits on other seeds, threads, precisions and CPUs?

    .venv/bin/python tests/survey.py --seeds 5 [--only "seed +1"] [test …]

runs each of them once per variant, and prints every number that an assertion compared. A test whose worst number is
near its limit needs a wider margin, or should assert something exact: another CPU rounds differently.
"""

import argparse
import itertools
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

LEARNING = (
    "tests/training/test_linear.py::test_it_learns_and_the_frozen_weights_do_not_move",
    "tests/training/test_start_comparison.py",
    "tests/training/test_supervised.py::test_it_learns_from_labels",
    "tests/training/test_supervised.py::test_its_backbone_is_judged_by_the_same_commands",
    "tests/training/test_pretraining.py::test_the_loss_falls_and_nothing_collapses",
    "tests/methods/test_batchnorm_leak.py",
    "tests/evaluation/test_ways_of_few_labels.py",
    "tests/evaluation/test_calibration.py",
    "tests/evaluation/test_logistic.py",
    "tests/evaluation/test_screening.py",
    "tests/evaluation/test_selection.py",
    "tests/synthetic/test_scene.py::test_colour_says_nothing_about_the_class",
    "tests/synthetic/test_scene.py::test_raw_pixels_do_not_solve_it_and_a_supervised_network_does",
    "tests/cli/test_check_and_select.py",
    "tests/cli/test_few_labels.py",
    "tests/cli/test_shared_work.py::test_knn",
    "tests/cli/test_shared_work.py::test_linear",
    "tests/cli/test_shared_work.py::test_pretrain",
    "tests/cli/test_ways_to_learn.py",
    "tests/models/test_detectors.py::test_a_detector_learns_one_picture_by_heart",
    "tests/methods/test_combinations.py::test_a_run_learns_and_goes_on_bit_by_bit_after_it_was_cut_off",
    "tests/methods/test_momentum_contrast.py::test_known_positives_are_not_pushed_away",
    "tests/methods/test_momentum_contrast.py::test_running_statistics_of_the_key_encoder_follow_its_batches",
    "tests/api/test_pretrain.py::test_arrays_and_datasets_of_the_same_images_give_the_same_backbone",
    "tests/api/test_run.py::test_it_is_judged_as_it_was",
)
STORED = ("tests/api/test_run.py::test_it_is_judged_as_it_was",)
"""These compare with figures that are stored: another seed is no comparison, another CPU is."""
ROOT = Path(__file__).parent.parent
SHIFT, THREADS, BF16, RECORD = "CSML_SURVEY_SHIFT", "CSML_SURVEY_THREADS", "CSML_SURVEY_BF16", "CSML_SURVEY_RECORD"
AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}


def variants(seeds: int) -> dict[str, dict[str, str]]:
    """Name → environment: every seed on one and two threads in both precisions, and the first seed on an older CPU."""
    found = {}
    for shift, threads, bf16 in itertools.product(range(seeds), (1, 2), (0, 1)):
        name = f"seed +{shift}, {threads} thread{'s' * (threads > 1)}, {'bf16' if bf16 else 'float32'}"
        found[name] = {SHIFT: str(shift), THREADS: str(threads), BF16: str(bf16)}
        if shift == 0 and (threads == 1) == (bf16 == 0):
            found[f"AVX2, {name}"] = found[name] | AVX2
    return found


# As a plugin of pytest, in the process that a variant runs in, and in the server that its processes are forked from.


def vary() -> None:
    """Seeds, threads and precision as the environment says."""
    import numpy as np
    import torch

    from csml.api import fastest_precision
    from csml.distributed import device

    shift, threads = int(os.environ[SHIFT]), int(os.environ[THREADS])
    manual_seed, sequence, set_threads = torch.manual_seed, np.random.SeedSequence, torch.set_num_threads
    torch.manual_seed = lambda seed: manual_seed(seed + 1000 * shift)  # weights
    # Every other draw depends on a key; shift 0 leaves it as it is.
    np.random.SeedSequence = lambda key, **more: sequence((*key, shift) if shift else key, **more)  # type: ignore
    # One stays one: a data worker is forked while threads exist, and would hang in its first parallel region.
    torch.set_num_threads = lambda count: set_threads(count if count == 1 else threads)
    # Not in the server itself: a process that is forked while threads exist hangs in its first parallel region.
    os.register_at_fork(after_in_child=lambda: set_threads(threads))
    for module in (device, fastest_precision):
        assert hasattr(module, "computes_bf16")
        module.computes_bf16 = lambda accelerator: os.environ[BF16] == "1"


if RECORD in os.environ:
    vary()
    rewrite.PYC_TAIL = f"-survey{rewrite.PYC_TAIL}"  # compiled tests of other runs do not tell what they compared


def pytest_configure() -> None:
    if RECORD in os.environ:
        from processes import FORKED, PRELOADED

        FORKED.set_forkserver_preload([*PRELOADED, "survey"])
        import torch

        torch.set_num_threads(0)  # as many as the variant has


def pytest_assertion_pass(item: pytest.Item, lineno: int, orig: str, expl: str) -> None:
    """Every assertion that compares sizes, with its values."""
    if RECORD in os.environ and re.search(r"[<>]|approx", orig):
        with open(os.environ[RECORD], "a") as file:
            assertion, values = " ".join(orig.split()), expl.splitlines()[0]
            file.write(f"{item.nodeid.partition('[')[0]}\t{assertion}\t{values}\n")


# As a program.


def measured(words: list[str], environment: dict[str, str]) -> tuple[list[str], list[str]]:
    """Lines of what assertions compared, and the tests that failed."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record"
        record.touch()
        paths = os.pathsep.join(str(ROOT / name) for name in ("src", "tests"))
        more = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", RECORD: str(record)}
        command = [sys.executable, "-m", "pytest", "-p", "survey", "-p", "no:cacheprovider", "--tb", "line"]
        command += ["-o", "enable_assertion_pass_hook=true", *words]
        done = subprocess.run(command, cwd=ROOT, env=os.environ | environment | more, capture_output=True, text=True)
        return record.read_text().splitlines(), re.findall(r"^FAILED .*", done.stdout, flags=re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds")
    parser.add_argument("--only", default="", help="variants whose name contains this, such as 'seed +1' or AVX2")
    parser.add_argument("tests", nargs="*", default=LEARNING, help="by default all tests of learning")
    asked = parser.parse_args()
    seen: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, environment in variants(asked.seeds).items():
        if asked.only not in name:
            continue
        tests = [test for test in asked.tests if environment[SHIFT] == "0" or test not in STORED]
        lines, failed = measured(tests, environment)
        print(f"{name}: {len(failed)} failed", *failed, sep="\n  ", flush=True)
        for line in lines:
            test, assertion, values = line.split("\t")
            seen[f"{test}: {assertion}"][name].append(values)
            print(f"    {test.partition('::')[2]}: {values}", flush=True)
    for assertion, by_variant in seen.items():
        print(f"\n{assertion}")
        for name, values in by_variant.items():
            print(f"  {name:34}", "; ".join(sorted(set(values)))[:300])


if __name__ == "__main__":
    main()
