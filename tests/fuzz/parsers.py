"""Every parser of bytes from outside: how it is called, a good example to damage, and the words of its format."""

import io
import json
import pickle
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save

from conftest import configured
from csml.ablations.plans import read_ablation
from csml.api.exporting import pack
from csml.config import KnnConfig, PretrainConfig, configure, read_config_file
from csml.data.bit_depth import Reading
from csml.data.decode import open_picture
from csml.data.images import ListedImages
from csml.data.packed import INDEX, Pack, PackedImages
from csml.data.patterns import expand_braces
from csml.data.tables import read_image_table, read_list, read_table
from csml.data.tars import read_contents
from csml.models.backbones import build_backbone
from csml.pixels import center_boxes
from csml.runs.checkpoint import load_checkpoint
from csml.runs.directory import RunDirectory
from csml.runs.locks import only_writer
from csml.runs.metadata import read_result, verb_of
from csml.runs.metrics import JsonLines, read_metrics
from csml.runs.settings import read_settings
from csml.runs.trust import read_trust
from csml.weights import load_backbone, load_classifier, load_detector, weight_facts
from csml.weights.reading import read_tensors


@dataclass(frozen=True)
class Parser:
    """One parser, and what its inputs are made of."""

    name: str
    file: str
    parse: Callable[[Path], Any]
    examples: Callable[[], list[bytes]]
    words: tuple[bytes, ...] = ()


def _config(path: Path) -> None:
    configure(PretrainConfig, read_config_file(path))


def _settings(path: Path) -> None:
    configure(KnnConfig, {k: v for k, v in read_settings(path.parent).items() if k.startswith("images.")})


def _line(path: Path) -> None:
    configured("pretrain", *path.read_bytes().decode("utf-8", "surrogateescape").replace("\0", "").split("\n"))


def _picture(path: Path) -> None:
    for channels in (3, 1, 4):
        open_picture(path, Reading(channels)).rgb()
        open_picture(path, Reading(channels, "percentile")).bands()


def _batch(path: Path) -> None:
    (crops,), good = ListedImages([path]).cut(
        np.zeros(1, np.int64), [(lambda rows, sizes: center_boxes(sizes, 0.9), 8)]
    )
    assert good.all() or not crops.any()


def _weights(path: Path) -> None:
    weight_facts(path)
    load_backbone(path)
    load_classifier(path)


def _pack(path: Path) -> None:
    images = PackedImages(Pack(str(path.parent)), "train")
    for id in range(len(images)):
        images.name(id)
        images.read(id)


def _metrics(path: Path) -> None:
    read_metrics(path)
    JsonLines(path, 1).write({"epoch": 2})
    assert read_metrics(path)[-1]["epoch"] == 2


def _facts(path: Path) -> None:
    verb_of(path.parent)
    read_result(RunDirectory(path.parent), "run")


def _lock(path: Path) -> None:
    with only_writer(path.parent):
        pass


def _tar(path: Path) -> None:
    contents = read_contents(path)
    assert len(contents.names) == len(contents.places)


def _text(*texts: str) -> Callable[[], list[bytes]]:
    return lambda: [text.encode() for text in texts]


@cache
def pictures() -> list[bytes]:
    """Small files of every format and mode."""
    rng, found = np.random.default_rng(0), []
    for mode in ("1", "L", "P", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV", "I", "F", "LA", "I;16"):
        pixels = rng.integers(0, 255, (9, 7, 4), dtype=np.uint8)
        if mode in ("I", "F", "I;16"):
            image = Image.fromarray(pixels[..., 0].astype({"I": np.int32, "F": np.float32, "I;16": np.uint16}[mode]))
        else:
            image = Image.fromarray(pixels).convert("RGB" if mode in ("LAB", "HSV") else mode)
        for suffix in ("png", "jpeg", "gif", "tiff", "bmp", "webp", "ppm", "jpeg2000"):
            file = io.BytesIO()
            try:
                image.save(file, suffix)
            except (OSError, ValueError, KeyError):
                continue
            found.append(file.getvalue())
    return found


@cache
def _safetensors() -> list[bytes]:
    net = build_backbone("nano", True, 3)
    tensors = {name: value.contiguous() for name, value in net.state_dict().items()}
    facts = {
        "backbone": "nano",
        "small_images": True,
        "size": 32,
        "eval_crop": 1.0,
        "channels": 3,
        "classes": ["a", "b"],
    }
    return [save(tensors, {"csml": json.dumps(facts)}), save({"a": torch.zeros(2)}, {"csml": "[]"})]


@cache
def _pickles() -> list[bytes]:
    found = [pickle.dumps({"a": [1, {}]}), pickle.dumps({"a": Path("x")}, protocol=0)]
    for zipped in (True, False):
        file = io.BytesIO()
        torch.save({"state": {"w": torch.zeros(3)}, "args": [1, "a"]}, file, _use_new_zipfile_serialization=zipped)
        found.append(file.getvalue())
    return found


@cache
def _tars() -> list[bytes]:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in (("a/0.png", pictures()[0]), ("a/0.cls", b"cat"), ("../1.json", b'{"label": 3}')):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return [file.getvalue()]


def make_pack(folder: Path) -> Path:
    """A pack of two pictures; its index is damaged later."""
    (folder / "photos").mkdir(parents=True)
    for number in range(2):
        (folder / "photos" / f"{number}.png").write_bytes(pictures()[6])
    return pack(folder / "photos", output=str(folder / "pack"))


YAML = (
    b"&a", b"*a", b"<<: *a", b"[", b"{", b"? ", b"!!python/object/apply:os.system ['touch x']", b"- ", b"\n  ", b": ",
    b"null", b".nan", b"1e999", b"9" * 400, b"0x" + b"f" * 4000, b'"\\ud800"', b"images:", b"|", b">", b"---\n",
    b"2001-99-99",
)  # fmt: skip
JSON = (
    b"[", b"{", b'"', b"NaN", b"Infinity", b"-1", b"9" * 5000, b"1e999", b"null", b'"\\ud800"', b"\\u0000", b",", b"}",
    b"]", b"true",
)  # fmt: skip
CSV = (
    b"path,label\n", b'"', b",", b"\n", b"\r", b"\0", b"=1+1", b"'", b"\t", b"\xff", b"\xef\xbb\xbf",
    b"../../etc/passwd", b"a" * 140_000,
)  # fmt: skip
PICKLE = (
    b"\x80\x04", b"(", b".", b"cos\nsystem\n", b"(S'touch x'\ntR.", b"}", b"]", b"q\x00", b"h\x00",
    b"\x95" + b"\xff" * 8, b"c__builtin__\neval\n",
)  # fmt: skip
IMAGE = (b"II*\0", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xd8\xff", b"IHDR", b"\x7f\xff\xff\xff")
ABLATION = "base: {preset: demo}\nseeds: [0]\nvariations:\n  one: {}\n  two: {twin: moco-v2}\ngrid: {epochs: [1, 2]}\n"
HOLDER = '{"command": "x", "process": 1, "machine": "a", "started": "1", "since": "b"}'


def _ablation(path: Path) -> None:
    read_ablation(str(path), None)


def _list(path: Path) -> None:
    read_list(path, "list")


def _braces(path: Path) -> None:
    expand_braces(path.read_bytes().decode("latin-1"))


PARSERS = (
    Parser("config", "c.yaml", _config, _text("epochs: 3\nimages: {size: 32}\nneighbors:\n  k: 5\n"), YAML),
    Parser("settings of a run", "config.yaml", _settings, _text("images: {size: 32, sample: null}\ndata: x\n"), YAML),
    Parser("ablation", "a.yaml", _ablation, _text(ABLATION), YAML),
    Parser("command line", "words", _line, _text("--preset\ndemo\n--epochs\n3", "--neighbors.k=5\n--data\nsynthetic"),
           (*YAML, b"--", b"=", b"--views.mix", b"--epochs\n" + b"9" * 400)),
    Parser("labels", "l.csv", read_table, _text("path,label\na.jpg,cat\n", "a.jpg,=1\n"), CSV),
    Parser("labels in JSON", "l.jsonl", read_table, _text('{"path": "a", "label": "b"}\n'), (*JSON, b"\n")),
    Parser("table of images", "t.tsv", read_image_table, _text("path\tlabel\na\tb\n"), CSV),
    Parser("list", "l.txt", _list, _text("a\nb\n"), CSV),
    Parser("picture", "p.png", _picture, pictures, IMAGE),
    Parser("pictures of a batch", "p.tif", _batch, pictures, IMAGE),
    Parser("safetensors", "w.safetensors", _weights, _safetensors, (*JSON, b"__metadata__", b"csml", b"\xff" * 8)),
    Parser("detector", "d.safetensors", load_detector, _safetensors, JSON),
    Parser("trust", "trust.safetensors", read_trust, _safetensors, JSON),
    Parser("pickle", "w.pt", read_tensors, _pickles, PICKLE),
    Parser("checkpoint", "epoch-0001-step-000001.pt", load_checkpoint, _pickles, PICKLE),
    Parser("tar", "t.tar", _tar, _tars, (b"ustar", b"\0" * 512, b"7" * 11, b"\xff" * 12, b"GNUSparse")),
    Parser("metrics", "metrics.jsonl", _metrics, _text('{"epoch": 1, "loss": 2.5}\n'), (*JSON, b'"epoch"', b"\n")),
    Parser("run.json", "run.json", _facts, _text('{"verb": "pretrain", "images": 3}'), JSON),
    Parser("lock", ".lock", _lock, _text(HOLDER), JSON),
    Parser("braces", "b.txt", _braces, _text("a{1,2}", "{08..10}.tar"), (b"{", b"}", b",", b"..", b"9" * 5000)),
)  # fmt: skip
PACK = Parser("pack", INDEX, _pack, lambda: [], JSON)
