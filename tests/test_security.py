"""The promises of SECURITY.md, each with a test."""

import io
import json
import os
import pickle
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import torch
import yaml
from PIL import Image

from conftest import csml, noise_photos
from csml import crash
from csml.data.packed import Pack, PackedImages
from csml.data.tars import read_contents
from csml.errors import CsmlError
from csml.runs.checkpoint import load_checkpoint
from csml.weights.reading import read_tensors

ROOT = Path(__file__).parent.parent


class Code:
    """Runs a command when it is unpickled by Python."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.proof}",)


@pytest.mark.parametrize("zipped", [True, False])
def test_weights_run_no_code(tmp_path: Path, zipped: bool) -> None:
    proof, file = tmp_path / "executed", tmp_path / "w.pt"
    state = {"model": {"w": torch.ones(2)}, "args": Code(proof)}
    torch.save(state, file, _use_new_zipfile_serialization=zipped)
    try:
        assert torch.equal(read_tensors(file)["model.w"], torch.ones(2))
    except CsmlError:
        assert not zipped  # the old format is refused as a whole
    with pytest.raises(CsmlError):
        load_checkpoint(file)
    assert not proof.exists()
    with file.open("wb") as raw:
        pickle.dump(Code(proof), raw)
    with pytest.raises(CsmlError):
        read_tensors(file)
    assert not proof.exists()
    pickle.loads(file.read_bytes())
    assert proof.exists()  # so the file was dangerous


def test_settings_run_no_code(tmp_path: Path) -> None:
    proof, file = tmp_path / "executed", tmp_path / "c.yaml"
    file.write_text(f"epochs: !!python/object/apply:os.system ['touch {proof}']\n")
    assert csml("pretrain", "--config", str(file), "--print-config").returncode == 2
    assert csml("knn", str(tmp_path)).returncode == 2
    yaml.unsafe_load(file.read_text())
    assert proof.exists()


def test_names_in_archives_lead_nowhere(tmp_path: Path) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (8, 8)).save(picture, "png")
    with tarfile.open(tmp_path / "t.tar", "w") as archive:
        for name in ("../../etc/passwd.png", "/abs.png", "a/../../b.png"):
            member = tarfile.TarInfo(name)
            member.size = len(picture.getvalue())
            archive.addfile(member, io.BytesIO(picture.getvalue()))
    assert read_contents(tmp_path / "t.tar").names == ["etc/passwd.png", "abs.png", "a/b.png"]


def test_a_pack_names_no_file_outside_of_its_folder(tmp_path: Path) -> None:
    noise_photos(tmp_path / "photos", 2)
    assert csml("pack", str(tmp_path / "photos"), "--output", str(tmp_path / "pack")).returncode == 0
    index = json.loads((tmp_path / "pack" / "pack.json").read_text())
    index["parts"]["train"]["names"]["file"] = "../photos/00.png"
    (tmp_path / "pack" / "pack.json").write_text(json.dumps(index))
    with pytest.raises(CsmlError, match="names a file outside of its folder"):
        PackedImages(Pack(str(tmp_path / "pack")), "train")


def test_nothing_is_sent_anywhere(tmp_path: Path) -> None:
    """Judging and embedding a folder opens no connection, not even a look-up of a name."""
    noise_photos(tmp_path / "photos", 3)
    code = (
        "import sys, socket\n"
        "seen = []\n"
        "def listen(event, arguments):\n"
        "    far = event == 'socket.connect' and isinstance(arguments[1], tuple)\n"  # not a local one
        "    if far or event == 'socket.getaddrinfo': seen.append((event, arguments))\n"
        "sys.addaudithook(listen)\n"
        "from csml.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert not seen, seen\n"
    )
    words = ["embed", "random:nano", "--data", str(tmp_path / "photos"), "--images.size", "32", "--output"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words, str(tmp_path / "f.npy")], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_the_explorer_has_no_address_but_the_loopback() -> None:
    """What it binds to is written in one place, and no setting changes it."""
    sources = [path.read_text() for path in (ROOT / "src" / "csml" / "explorer").glob("*.py")]
    assert any('"127.0.0.1"' in text for text in sources)
    assert not any("0.0.0.0" in text or '"::"' in text for text in sources)
    assert "--host" not in csml("explore", "--help").stdout


def test_a_crash_report_has_no_image_in_it() -> None:
    secret = torch.full((4, 4), 123456.0)

    def fails(pixels: torch.Tensor) -> None:
        raise ValueError(f"wrong shape {tuple(pixels.shape)}")

    with pytest.raises(ValueError) as found:
        fails(secret)
    text = Path(crash.crashed(found.value, ["embed", "x"]).rpartition(" ")[2]).read_text()
    assert "wrong shape (4, 4)" in text and "123456" not in text


def test_every_package_is_pinned_so_that_pip_audit_can_read_it() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    packages = [line for line in lines if line and not line.startswith("#")]
    odd = [line for line in packages if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!_-]+", line)]
    assert not odd
    assert len({line.partition("==")[0].lower().replace("_", "-") for line in packages}) == len(packages)


def test_each_promise_names_a_test_that_exists() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    for path in re.findall(r"`(tests/[\w./]+)`", text):
        assert (ROOT / path).exists(), path
