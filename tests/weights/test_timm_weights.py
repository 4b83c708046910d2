"""Weights of timm's networks: saved and loaded, recognised in files of others, and chosen by name."""

import json
from pathlib import Path

import pytest
import timm
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from csml.config import BackboneConfig, ImagesConfig
from csml.errors import CsmlError
from csml.models import build_backbone
from csml.models.backbones import normalization
from csml.models.classifier import Classifier
from csml.weights import load_backbone, load_classifier, network_of, save_backbone, save_classifier
from csml.weights.layouts import backbone_tensors, recognise
from csml.weights.named import PACKAGES

IMAGES = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
NETWORKS = [
    "timm:test_resnet", "timm:resnet10t", "timm:resnext26ts", "timm:regnety_002", "timm:test_efficientnet",
    "timm:mobilenetv3_small_050", "timm:test_convnext", "timm:convnextv2_atto", "timm:test_vit",
]  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_a_saved_network_comes_back_with_what_its_images_are(name: str, tmp_path: Path) -> None:
    net = build_backbone(name)
    net(torch.rand(4, 3, 64, 64))  # BatchNorm has statistics of its own
    path = tmp_path / "backbone.safetensors"
    save_backbone(path, net, BackboneConfig(name), ImagesConfig(size=96, eval_crop=1.0))
    with torch.no_grad():
        torch.testing.assert_close(load_backbone(tmp_path)(IMAGES), net.eval()(IMAGES), atol=0, rtol=0)
    with safe_open(path, framework="pt") as file:
        facts = json.loads(file.metadata()["csml"])
    by = normalization(net)
    known = {"backbone": name, "small_images": False, "size": 96, "eval_size": 96, "eval_crop": 1.0, "channels": 3}
    assert facts == {**known, "mean": list(by.mean), "std": list(by.std)}


def test_a_classifier_and_the_backbone_in_it_come_back(tmp_path: Path) -> None:
    network, path = BackboneConfig("timm:test_efficientnet"), tmp_path / "classifier.safetensors"
    classifier = Classifier(build_backbone(network.backbone), 3).eval()
    save_classifier(path, classifier, network, ImagesConfig(), ("a", "b", "c"))
    with torch.no_grad():
        torch.testing.assert_close(load_classifier(path)[0](IMAGES), classifier(IMAGES))
        torch.testing.assert_close(load_backbone(path)(IMAGES), classifier.backbone(IMAGES))


@pytest.mark.parametrize(
    "name",
    ["regnety_002", "tf_efficientnet_lite0", "efficientnet_b0", "mobilenetv3_small_100", "convnext_atto",
     "convnextv2_atto", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224"],
)  # fmt: skip
def test_a_plain_file_of_timm_is_recognised_under_any_prefix(name: str) -> None:
    prefix = "teacher.backbone."
    with torch.device("meta"):
        net = timm.create_model(name)  # with its classifier
    tensors = {f"{prefix}{key}": value for key, value in net.state_dict().items()}
    tensors |= {"teacher.head.mlp.0.weight": torch.zeros(2, 2)}
    found = backbone_tensors(tensors)
    assert set(found) >= set(net.state_dict())
    assert recognise(found) == f"timm:{name}"


def test_a_plain_file_of_timm_is_loaded_with_its_weights(tmp_path: Path) -> None:
    net = timm.create_model("mobilenetv3_small_100").eval()
    file = tmp_path / "theirs.pth"
    torch.save({"teacher": {f"backbone.{key}": value for key, value in net.state_dict().items()}}, file)
    assert network_of(file) == BackboneConfig("timm:mobilenetv3_small_100")
    net.reset_classifier(0)
    with torch.no_grad():
        torch.testing.assert_close(load_backbone(file)(IMAGES), net(IMAGES))


def test_a_network_of_timm_that_is_not_known_is_told_in_one_line(tmp_path: Path) -> None:
    save_file(timm.create_model("test_vit").state_dict(), tmp_path / "odd.safetensors")
    with pytest.raises(CsmlError, match="does not match any known network"):
        load_backbone(tmp_path / "odd.safetensors")


def test_weights_of_a_package_are_timm_s_network_with_its_normalisation() -> None:
    pytest.importorskip(PACKAGES["lite0"].module)
    net = load_backbone("lite0")
    assert network_of("lite0") == BackboneConfig("timm:tf_efficientnet_lite0")
    assert not net.training
    assert normalization(net).mean == (0.5, 0.5, 0.5)
    assert net.state_dict()["bn1.running_var"].std() > 0.01  # trained; fresh statistics are all 1


def test_a_package_that_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CsmlError, match=r"needs the extra \[weights\]"):
        load_backbone("lite0")
