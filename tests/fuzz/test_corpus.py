"""Every input that once broke csml, replayed: a traceback, a hang, or memory without end."""

import pickle
import struct
from pathlib import Path

import pytest
from parsers import PARSERS, make_pack
from watching import check

from csml.config import ImagesConfig
from csml.data import open_data
from csml.data.bit_depth import Reading
from csml.data.decode import DecodeError
from csml.data.tiff import TiffPicture
from csml.errors import CsmlError

_BY_NAME = {parser.name: parser for parser in PARSERS}


def _alias_bomb(times: int = 9, depth: int = 12) -> bytes:
    lines = [b"a0: &a0 [x]"]
    for level in range(1, depth):
        lines.append(b"a%d: &a%d [%s]" % (level, level, b", ".join([b"*a%d" % (level - 1)] * times)))
    return b"\n".join(lines)


def _contains_itself() -> bytes:
    endless: dict[str, object] = {}
    endless["a"] = endless
    return pickle.dumps(endless)


CORPUS = [
    ("config", b""),
    ("config", b"images:\n"),
    ("config", b"images: [1]\n"),
    ("config", _alias_bomb()),
    ("config", b"images: &a {size: *a}\n"),
    ("config", b"images: &a {<<: *a}\n"),
    ("config", b"epochs: " + b"9" * 400),
    ("config", b"epochs: 0x" + b"f" * 6000),
    ("config", b"optimizer: {lr_per_256: .nan}\n"),
    ("config", b"[" * 20_000),
    ("config", b'out: "\\ud800"\n'),
    ("config", b"\xff\xfe\0a"),
    ("settings of a run", _alias_bomb()),
    ("settings of a run", b""),
    ("ablation", _alias_bomb()),
    ("ablation", b"base: &a {x: *a}\n"),
    ("command line", b"--epochs\n" + b"9" * 5000),
    ("command line", b"--data\n" + b"s,--neighbors.k=5," * 3000),
    ("command line", b"--data\na\xffb"),
    ("command line", b"--" + b"9" * 50_000),
    ("labels", b"a" * 200_000 + b",b\n"),
    ("labels", b'"' + b"a" * 300_000),
    ("labels", b"0.png,\xff\n"),
    ("labels", b"a\0b,c\n"),
    ("labels in JSON", b"[" * 200_000),
    ("labels in JSON", b'{"path": "a", "label": ' + b"9" * 5000 + b"}"),
    ("labels in JSON", b'{"path": "a", "label": "\\ud800"}'),
    ("safetensors", b""),
    ("safetensors", b"\xff" * 8),
    ("pickle", b""),
    ("pickle", _contains_itself()),
    ("pickle", b"\x80\x02]q\x00h\x00a."),
    ("pickle", b"cos\nsystem\n(S'touch x'\ntR."),
    ("pickle", b"\x80\x04" + b"(" * 100_000 + b"."),
    ("checkpoint", b"PK\x03\x04"),
    ("metrics", b"[1]\n"),
    ("metrics", b"{}\n\xff\n"),
    ("metrics", b"[" * 200_000),
    ("metrics", b'{"epoch": ' + b"9" * 5000 + b"}"),
    ("run.json", b"[]"),
    ("run.json", b"{"),
    ("lock", b'{"process": "x"}'),
    ("braces", b"{0.." + b"9" * 5000 + b"}"),
    ("braces", b"{" * 3000),
]


@pytest.mark.parametrize(
    ("name", "content"), CORPUS, ids=[f"{name} {number}" for number, (name, _) in enumerate(CORPUS)]
)
def test_what_once_broke_csml_is_one_line_or_works(name: str, content: bytes, tmp_path: Path) -> None:
    check(_BY_NAME[name].parse, content, tmp_path, _BY_NAME[name].file)


def test_a_tiff_file_without_height_is_one_line(tmp_path: Path) -> None:
    fields = [(256, 4, 2**31), (257, 4, 0), (258, 3, 1), (259, 3, 1), (262, 3, 1), (273, 4, 8), (279, 4, 1)]
    tags = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in fields)
    (tmp_path / "a.tif").write_bytes(b"II*\0" + struct.pack("<IH", 8, len(fields)) + tags + b"\0" * 8)
    with pytest.raises(DecodeError):
        TiffPicture(tmp_path / "a.tif", Reading(2)).rgb()


@pytest.mark.parametrize("damage", [('"parts"', '"[parts"'), ('"rows"', '"[rows"'), ('"shards"', '"shard"')])
def test_the_list_of_a_pack_without_its_parts_is_one_line(damage: tuple[str, str], tmp_path: Path) -> None:
    index = make_pack(tmp_path) / "pack.json"
    index.write_text(index.read_text().replace(*damage))
    with pytest.raises(CsmlError, match="is damaged"):
        open_data(str(index.parent), ImagesConfig())


@pytest.mark.parametrize("content", ['""', "[]", "1", "null"])
def test_the_list_of_a_pack_that_is_no_object_is_one_line(content: str, tmp_path: Path) -> None:
    (tmp_path / "pack.json").write_text(content)
    with pytest.raises(CsmlError, match="is not a pack of this version of csml"):
        open_data(str(tmp_path), ImagesConfig())
