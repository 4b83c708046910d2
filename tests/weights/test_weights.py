"""Weights in and out of files."""

import pickle
from pathlib import Path

import pytest
import torch
import torchvision

from csml import load_backbone
from csml.config.schema import PretrainConfig
from csml.errors import CsmlError
from csml.models import build_backbone
from csml.weights import save_backbone, weight_facts


@pytest.mark.parametrize(("name", "small"), [("tiny", False), ("small", True), ("resnet18", False), ("resnet18", True)])
def test_a_saved_backbone_computes_the_same(tmp_path: Path, name: str, small: bool) -> None:
    config = PretrainConfig()
    config.model.backbone, config.model.small_images, config.images.size = name, small, 48
    net = build_backbone(name, small).eval()
    save_backbone(tmp_path / "backbone.safetensors", net, config)
    images = torch.rand(2, 3, 48, 48)
    with torch.no_grad():
        for path in (tmp_path, tmp_path / "backbone.safetensors"):
            torch.testing.assert_close(load_backbone(path)(images), net(images))
    assert weight_facts(tmp_path)["size"] == 48


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
@pytest.mark.parametrize("prefix", ["", "module.encoder_q.", "module.", "backbone."])
def test_others_layouts_are_recognised(tmp_path: Path, name: str, prefix: str) -> None:
    net = getattr(torchvision.models, name)(weights=None).eval()
    torch.save({"state_dict": {prefix + k: v for k, v in net.state_dict().items()}}, tmp_path / "w.pth")
    net.fc = torch.nn.Identity()
    images = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(load_backbone(tmp_path / "w.pth")(images), net(images))


class Trap:
    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("/tmp/csml-was-here"),)


def test_pickled_code_is_not_executed(tmp_path: Path) -> None:
    (tmp_path / "w.pth").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(CsmlError, match="cannot be read"):
        load_backbone(tmp_path / "w.pth")
    assert not Path("/tmp/csml-was-here").exists()


def test_what_does_not_fit_is_said(tmp_path: Path) -> None:
    with pytest.raises(CsmlError, match="no weights"):
        load_backbone(tmp_path / "nowhere.pth")
    torch.save({"a": torch.zeros(1)}, tmp_path / "odd.pth")
    with pytest.raises(CsmlError, match="none of the networks"):
        load_backbone(tmp_path / "odd.pth")
    state = build_backbone("resnet18").state_dict()
    del state["bn1.weight"]
    torch.save(state, tmp_path / "part.pth")
    with pytest.raises(CsmlError, match=r"bn1\.weight is missing"):
        load_backbone(tmp_path / "part.pth")
