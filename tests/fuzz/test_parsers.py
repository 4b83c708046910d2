"""Damaged, hostile and random bytes for every parser. `make fuzz EXAMPLES=20000` tries more, with other seeds."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parsers import PACK, PARSERS, Parser, make_pack
from watching import check

ASKED = os.environ.get("FUZZ_EXAMPLES")
FUZZED = settings(
    max_examples=int(ASKED or 40),
    derandomize=ASKED is None,  # in make test, the same inputs every time
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@st.composite
def damaged(draw: st.DrawFn, examples: list[bytes], words: tuple[bytes, ...]) -> bytes:
    """A good example after a few edits, or random bytes with words of the format between them."""
    content = bytearray(draw(st.sampled_from(examples)) if draw(st.integers(0, 9)) else draw(st.binary(max_size=60)))
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, len(content)))
        end = draw(st.integers(start, min(len(content), start + 40)))
        how = draw(st.integers(0, 5))
        if how == 0:
            del content[start:]
        elif how == 1:
            content[start:end] = draw(st.binary(max_size=8))
        elif how == 2 and words:
            content[start:end] = draw(st.sampled_from(words))
        elif how == 3:
            content[start:start] = content[start:end] * draw(st.sampled_from([1, 2, 9, 300]))
        elif how == 4 and words:
            content[start:start] = draw(st.sampled_from(words)) * draw(st.sampled_from([1, 2, 30, 2000]))
        elif start < len(content):
            content[start] ^= 1 << draw(st.integers(0, 7))
    return bytes(content[: 2**20])


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
def test_it_works_or_is_one_line(parser: Parser, tmp_path: Path) -> None:
    @FUZZED
    @given(damaged(parser.examples(), parser.words))
    def holds(content: bytes) -> None:
        check(parser.parse, content, tmp_path, parser.file)

    holds()


def test_a_pack_works_or_is_one_line(tmp_path: Path) -> None:
    pack = make_pack(tmp_path)
    good = {path.name: path.read_bytes() for path in pack.iterdir()}
    assert json.loads(good[PACK.file])["parts"]

    @FUZZED
    @given(
        st.sampled_from(sorted(good)).flatmap(lambda name: st.tuples(st.just(name), damaged([good[name]], PACK.words)))
    )
    def holds(damage: tuple[str, bytes]) -> None:
        for name, content in good.items():
            (pack / name).write_bytes(damage[1] if name == damage[0] else content)
        check(PACK.parse, (pack / PACK.file).read_bytes(), pack, PACK.file)

    holds()
