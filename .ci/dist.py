"""Build the sdist and the wheel into a folder: `python .ci/dist.py dist`. The same commit gives the same bytes.

Times are those of the commit, or SOURCE_DATE_EPOCH. setuptools leaves owners, modes and times of the machine in an
sdist, so its archive is written again without them; the wheel is then built from that sdist.
"""

import gzip
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(target: Path) -> None:
    """Write both files, and print their names."""
    target.mkdir(parents=True, exist_ok=True)
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or _time_of_commit()
    environment = os.environ | {"SOURCE_DATE_EPOCH": epoch, "PYTHONHASHSEED": "0"}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        _build("--sdist", _tracked(place / "tracked"), place / "raw", environment)
        (raw,) = (place / "raw").iterdir()
        sdist = target / raw.name
        _rewrite(raw, sdist, int(epoch))
        with tarfile.open(sdist) as archive:
            archive.extractall(place / "source", filter="data")
        (source,) = (place / "source").iterdir()
        _build("--wheel", source, place / "wheel", environment)
        (wheel,) = (place / "wheel").iterdir()
        (target / wheel.name).write_bytes(wheel.read_bytes())
    print(sdist, target / wheel.name, sep="\n")


def _tracked(copy: Path) -> Path:
    """A copy of the files that git tracks: what else lies in the folder, an old list of files above all, stays out."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:  # an unpacked sdist
        return ROOT
    for name in filter(None, done.stdout.split("\0")):
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    return copy


def _build(kind: str, source: Path, target: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", kind, "--outdir", str(target), str(source)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}")


def _rewrite(raw: Path, target: Path, epoch: int) -> None:
    """The same archive, sorted, without the owners, modes and times of this machine."""
    with (
        tarfile.open(raw) as old,
        gzip.GzipFile(target, "wb", mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime, member.pax_headers = epoch, {}
            member.mode = 0o755 if member.isdir() else 0o644
            new.addfile(member, old.extractfile(member) if member.isfile() else None)


def _time_of_commit() -> str:
    done = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "315532800"  # 1980, the first year that a wheel can hold


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
