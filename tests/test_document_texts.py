"""What README and docs say without running it: commands that exist, links, and the figures of the evidence."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from csml.ablations.tables import write_page
from csml.cli.commands import COMMANDS
from pages import PAGES, ROOT, blocks, commands, lines_of


def test_readme_and_model_card_have_the_figures_of_the_evidence() -> None:
    readme, card = ((ROOT / name).read_text() for name in ("README.md", "docs/models.md"))
    (start,) = re.findall(r"^\| EfficientNet-Lite0, the start \| .+? \| (.+) \|$", card, flags=re.M)
    for name, folder in (("flowers", "23-preset-photos-flowers"), ("leaves", "24-preset-photos-plants")):
        (row,) = re.findall(rf"^\| CsMl on {name} \| .+? \| (.+) \|$", card, flags=re.M)
        runs = json.loads((ROOT / "docs" / "evidence" / folder / "results.json").read_text())["runs"]
        for place, measure in enumerate(("20-NN", "linear", "5 labels a class")):
            before, moco, ours = (
                [100 * run[measure] for run in runs if run["variation"] == variation]
                for variation in ("starting weights", "MoCo v2, equal minutes", "CsMl")
            )
            assert row.split(" | ")[place] == f"{np.mean(ours):.1f} ± {np.std(ours, ddof=1):.1f}"
            assert f"{np.mean(before):.1f}" in start.split(" | ")[place]
            said = f"{name} {np.mean(before):.1f} → {np.mean(ours):.1f} %"
            (line,) = (line for line in readme.splitlines() if said in line.replace("*", ""))
            assert f"{np.mean(moco):.1f}" in line


def test_readme_has_the_figures_of_labels_that_spread() -> None:
    (line,) = (line for line in (ROOT / "README.md").read_text().splitlines() if "labels that spread" in line)
    for folder in ("21-few-labels-plants", "22-few-labels-flowers"):
        runs = json.loads((ROOT / "docs" / "evidence" / folder / "results.json").read_text())["runs"]
        for measure in ("1 a class", "5 a class"):
            alone, spread = (
                np.mean([100 * run[measure] for run in runs if run["variation"] == f"CsMl: labels {how}"])
                for how in ("alone", "spread")
            )
            assert f"{alone:.1f} → {spread:.1f} %" in line.replace("*", "")


def shown_commands() -> Iterator[tuple[str, list[str]]]:
    """Every csml command in a block of any page, those too that are not run because they take long."""
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        for block in (*blocks(name, ""), *blocks(name, "sh")):
            if block.startswith(("csml", "srun", "#!/bin", "export", "python")):
                for words in lines_of(block):
                    start = next((i + 1 for i, word in enumerate(words) if word == "csml"), None)
                    if start is not None:
                        yield name, words[start:]


def test_every_command_that_a_page_shows_is_understood() -> None:
    found = list(shown_commands())
    assert len(found) > 60
    for page, (name, *words) in found:
        COMMANDS[name].options().parse([word for word in words if word != "…"]), page


def test_the_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for words in commands("README.md"):
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", makefile, flags=re.MULTILINE)


def test_no_document_was_left_half_written() -> None:
    for document in PAGES:
        assert not re.search(r"\b(TODO|FIXME|DEMO_\w+)\b", document.read_text()), document.name


def test_links_of_the_documents_lead_somewhere() -> None:
    for document in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text()):
            outside = target.startswith(("https:", "reference/"))  # pages that the site writes; tests/test_site.py
            assert outside or (document.parent / target).exists(), (document.name, target)


def test_every_file_the_architecture_page_names_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    for name in re.findall(r"`([\w/]+\.py)`", text):
        found = [ROOT / name, *(ROOT / "src" / "csml").rglob(name)]
        assert any(path.exists() for path in found), name


def test_the_results_are_what_the_evidence_says(tmp_path: Path) -> None:
    """docs/results.md as `make results` writes it, from the files that are committed."""
    evidence = ROOT / "docs" / "evidence"
    folders = sorted(path.parent for path in evidence.glob("*/results.json"))
    assert len(folders) >= 5
    page = tmp_path / "docs" / "results.md"
    shutil.copytree(evidence, page.parent / "evidence")
    copies = [page.parent / "evidence" / folder.name for folder in folders]
    write_page(copies, page, "Does each part help?", page.parent / "evidence" / "introduction.md")
    assert page.read_text() == (ROOT / "docs" / "results.md").read_text(), "give: make results"
