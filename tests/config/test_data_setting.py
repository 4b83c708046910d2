"""The value of `data`: one text for one source or several."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from conftest import configured, csml
from csml.config import PretrainConfig, as_settings, configure, join_sources, sources_title, split_sources
from csml.config.sources import absolute_sources
from csml.errors import CsmlError
from csml.models.backbones import build_backbone
from csml.run_files import BACKBONE
from csml.weights import save_backbone

names = st.text(st.characters(exclude_characters=",{}\0", categories=("L", "N", "P")), min_size=1, max_size=8)


@given(st.lists(names, min_size=1, max_size=5))
def test_what_was_joined_is_split_again(sources: list[str]) -> None:
    assert split_sources(join_sources(sources)) == tuple(sources)


@given(st.lists(st.text("ab,{}. /", max_size=8), max_size=4))
def test_a_list_means_the_same_sources_or_is_refused_in_one_line(sources: list[str]) -> None:
    try:
        joined = join_sources(sources)
    except CsmlError as error:
        assert "\n" not in str(error)
    else:
        assert len(sources) == 1 or split_sources(joined) == tuple(source.strip() for source in sources)


def test_a_comma_in_braces_or_in_an_existing_path_divides_nothing(tmp_path: Path) -> None:
    assert split_sources("a-{1,2}.tar,b") == ("a-{1,2}.tar", "b")
    (tmp_path / "Smith, John").mkdir()
    assert split_sources(str(tmp_path / "Smith, John")) == (str(tmp_path / "Smith, John"),)


@pytest.mark.parametrize(
    "words", [["--data", "a,b"], ["--data", "a", "--data", "b"], ["--data", "[a, b]"], ["--data=[a]", "--data", "b"]]
)
def test_the_command_line_takes_several(words: list[str]) -> None:
    assert configured("pretrain", "--preset", "demo", *words).data == f"{Path('a').absolute()},{Path('b').absolute()}"


def test_python_and_yaml_take_lists_and_config_yaml_gets_a_text() -> None:
    config = configure(PretrainConfig, {"data": ["a", Path("b")]})
    assert as_settings(config)["data"] == "a,b"
    assert configure(PretrainConfig, {"data": "photos"}).data == "photos"  # as runs of csml 0.1 have it
    with pytest.raises(CsmlError, match="data: the list is empty"):
        configure(PretrainConfig, {"data": []})
    with pytest.raises(CsmlError, match="data: expected text"):
        configure(PretrainConfig, {"data": ["a", 3]})
    with pytest.raises(CsmlError, match="'x,y' cannot be one of several"):
        configure(PretrainConfig, {"data": ["a", "x,y"]})


def test_paths_become_absolute_and_names_stay() -> None:
    here = Path.cwd()
    assert absolute_sources("a,hf:user/set,s3://bucket/pack") == f"{here}/a,hf:user/set,s3://bucket/pack"
    assert absolute_sources("cifar10") == "cifar10"
    assert absolute_sources("s-{0..3}.tar") == f"{here}/s-{{0..3}}.tar"


def test_a_run_has_a_plain_name(tmp_path: Path) -> None:
    (tmp_path / "my photos.old").mkdir()
    assert sources_title(str(tmp_path / "my photos.old")) == "my photos.old"
    assert sources_title("/x/train-{000..012}.tar") == "train"
    assert sources_title("/x/*.tar,/y") == "images+1"
    assert sources_title("/x/list.csv") == "list"
    assert sources_title("hf:user/birds") == "birds"
    assert sources_title("synthetic") == "synthetic"


@pytest.mark.parametrize("words", [[], ["--preset", "photos"], ["--epochs", "1"]])
def test_training_on_images_that_nobody_named_is_refused(words: list[str], tmp_path: Path) -> None:
    done = csml("pretrain", *words, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("csml: error: data: give the images, --data FOLDER")
    assert done.stderr.count("\n") == 1 and not any(tmp_path.iterdir())


def test_a_sample_is_inherited_only_where_labels_are_not_used(tmp_path: Path) -> None:
    made = configured("pretrain", "--preset", "demo", "--images.sample", "50", "--model.backbone", "nano")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(as_settings(made)))
    save_backbone(tmp_path / BACKBONE, build_backbone("nano"), made.model, made.images)
    assert configured("embed", str(tmp_path)).images.sample == 50
    for command in ("knn", "linear", "finetune"):
        assert configured(command, str(tmp_path)).images.sample is None
        assert configured(command, str(tmp_path), "--images.sample", "20").images.sample == 20
