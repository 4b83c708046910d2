"""What `csml.embed` writes, and what it leaves alone."""

from pathlib import Path

import pytest

import csml
from conftest import noise_photos


@pytest.mark.parametrize("there", ["photos.npy", "photos.csv"])
def test_neither_the_features_nor_the_table_beside_them_replaces_a_file(there: str, tmp_path: Path) -> None:
    noise_photos(tmp_path / "photos", 2)
    (tmp_path / there).write_text("path,label\n")
    with pytest.raises(csml.CsmlError, match=f"^output: .*{there} exists; choose another, or delete it$"):
        csml.embed("random:nano", tmp_path / "photos", output=tmp_path / "photos.npy")
    assert (tmp_path / there).read_text() == "path,label\n"
    assert {path.name for path in tmp_path.iterdir()} == {"photos", there}
