"""Weights in and out of files."""

import argparse
import pickle
from copy import deepcopy
from datetime import datetime
from pathlib import Path

import pytest
import torch
import torchvision
from safetensors.torch import save_file

from csml import load_backbone
from csml.config import BackboneConfig, ImagesConfig
from csml.errors import CsmlError
from csml.models import build_backbone
from csml.models.classifier import Classifier
from csml.weights import load_classifier, save_backbone, save_classifier, weight_facts


@pytest.mark.parametrize(("name", "small"), [("tiny", False), ("small", True), ("resnet18", False), ("resnet18", True)])
def test_a_saved_backbone_computes_the_same(tmp_path: Path, name: str, small: bool) -> None:
    model, images_config = BackboneConfig(name, small), ImagesConfig(size=48)
    net = build_backbone(name, small).eval()
    save_backbone(tmp_path / "backbone.safetensors", net, model, images_config)
    images = torch.rand(2, 3, 48, 48)
    with torch.no_grad():
        for path in (tmp_path, tmp_path / "backbone.safetensors"):
            torch.testing.assert_close(load_backbone(path)(images), net(images))
    assert weight_facts(tmp_path)["size"] == 48


PREFIXES = {
    "torchvision": "",
    "MoCo v1 and v2": "module.encoder_q.",
    "SwAV": "module.",
    "SimSiam": "module.encoder.",
    "BYOL": "online_encoder.net.",
    "solo-learn": "backbone.",
    "solo-learn, older": "encoder.",
    "VISSL": "classy_state_dict.base_model.model.trunk._feature_blocks.",
}


def resnet(name: str) -> torch.nn.Module:
    """With running statistics and biases that matter."""
    net = getattr(torchvision.models, name)(weights=None)
    net(torch.randn(4, 3, 64, 64))
    return net.eval()


@pytest.fixture(scope="module", params=["resnet18", "resnet50"])
def network(request: pytest.FixtureRequest) -> torch.nn.Module:
    return resnet(request.param)


def assert_same_features(path: Path, net: torch.nn.Module) -> None:
    net.fc = torch.nn.Identity()
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(load_backbone(path)(images), net(images))


@pytest.mark.parametrize("whose", PREFIXES)
def test_others_layouts_are_recognised(tmp_path: Path, network: torch.nn.Module, whose: str) -> None:
    net, prefix = deepcopy(network), PREFIXES[whose]
    torch.save({"epoch": 3, "state_dict": {prefix + k: v for k, v in net.state_dict().items()}}, tmp_path / "w.pth")
    assert_same_features(tmp_path / "w.pth", net)


def test_the_network_that_learnt_is_preferred_to_its_averaged_copy(tmp_path: Path) -> None:
    net, copy = resnet("resnet18"), resnet("resnet18")
    for learnt, follower in (
        ("module.encoder_q.", "module.encoder_k."),
        ("online.", "target."),
        ("bb.", "bb_momentum."),
    ):
        state = {follower + k: v for k, v in copy.state_dict().items()}
        state |= {learnt + k: v for k, v in net.state_dict().items()}
        torch.save({"state_dict": state}, tmp_path / "w.pth")
        assert_same_features(tmp_path / "w.pth", net)
    only = {"teacher": {"backbone." + k: v for k, v in copy.state_dict().items()}}  # DINO's evaluation files
    torch.save(only, tmp_path / "w.pth")
    assert_same_features(tmp_path / "w.pth", copy)


def test_a_resnet_cut_into_a_sequence_is_recognised_as_lightly_saves_it(tmp_path: Path) -> None:
    net = resnet("resnet18")
    sequence = torch.nn.Sequential(*list(net.children())[:-1])
    momentum = torch.nn.Sequential(*list(resnet("resnet18").children())[:-1])
    state = {f"backbone_momentum.{k}": v for k, v in momentum.state_dict().items()}
    state |= {f"backbone.{k}": v for k, v in sequence.state_dict().items()}
    state |= {"projection_head.layers.0.weight": torch.zeros(3, 3)}
    torch.save({"state_dict": state, "hyper_parameters": {}}, tmp_path / "w.ckpt")
    assert_same_features(tmp_path / "w.ckpt", net)


def test_timm_s_file_is_read_as_it_is(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    net = timm.create_model("resnet18", num_classes=0)
    net(torch.randn(4, 3, 64, 64))
    save_file(net.state_dict(), tmp_path / "model.safetensors")
    with torch.no_grad():
        images = torch.rand(2, 3, 64, 64)
        torch.testing.assert_close(load_backbone(tmp_path / "model.safetensors")(images), net.eval()(images))


def test_counters_of_batches_may_be_missing(tmp_path: Path) -> None:
    net = resnet("resnet18")
    torch.save({k: v for k, v in net.state_dict().items() if "tracked" not in k}, tmp_path / "w.pth")
    assert_same_features(tmp_path / "w.pth", net)


def test_settings_that_a_trainer_pickled_beside_the_weights_do_no_harm(tmp_path: Path) -> None:
    net = resnet("resnet18")
    beside = {"args": argparse.Namespace(lr=0.1), "loops": [Settings({"lr": 0.1}), datetime.now()]}
    torch.save({"state_dict": net.state_dict(), **beside}, tmp_path / "w.ckpt")
    assert_same_features(tmp_path / "w.ckpt", net)


def test_the_format_before_torch_1_6_is_read_as_far_as_torch_itself_trusts_it(tmp_path: Path) -> None:
    net = resnet("resnet18")
    torch.save({"state_dict": net.state_dict()}, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    assert_same_features(tmp_path / "old.pth", net)
    torch.save({"w": net.state_dict(), "s": Settings()}, tmp_path / "odd.pth", _use_new_zipfile_serialization=False)
    with pytest.raises(CsmlError, match="cannot be read"):
        load_backbone(tmp_path / "odd.pth")


class Settings(dict):  # type: ignore[type-arg]
    """A class of the trainer's own."""


class Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def test_pickled_code_is_not_executed(tmp_path: Path) -> None:
    net = resnet("resnet18")
    (tmp_path / "bare.pth").write_bytes(pickle.dumps(Trap(tmp_path / "was-here")))
    with pytest.raises(CsmlError, match=r"cannot be read|without weights"):
        load_backbone(tmp_path / "bare.pth")
    torch.save({"trap": Trap(tmp_path / "was-here"), "state_dict": net.state_dict()}, tmp_path / "w.pth")
    assert_same_features(tmp_path / "w.pth", net)
    assert not (tmp_path / "was-here").exists()


def test_what_does_not_fit_is_said(tmp_path: Path) -> None:
    with pytest.raises(CsmlError, match="no weights"):
        load_backbone(tmp_path / "nowhere.pth")
    torch.save({"a": torch.zeros(1)}, tmp_path / "odd.pth")
    with pytest.raises(CsmlError, match="does not match any known network"):
        load_backbone(tmp_path / "odd.pth")
    state = build_backbone("resnet18").state_dict()
    del state["bn1.weight"], state["bn1.bias"]
    state["conv1.bias"] = torch.zeros(64)
    torch.save(state, tmp_path / "part.pth")
    with pytest.raises(CsmlError, match=r"resnet18: 2 missing \(bn1\.weight, .*\); 1 unexpected \(conv1\.bias\)"):
        load_backbone(tmp_path / "part.pth")


def test_a_classifier_comes_back_with_its_classes_and_its_backbone(tmp_path: Path) -> None:
    classifier = Classifier(build_backbone("tiny"), 3).eval()
    network = BackboneConfig("tiny")
    save_classifier(tmp_path / "classifier.safetensors", classifier, network, ImagesConfig(), ("a", "b", "c"))
    again, facts = load_classifier(tmp_path)
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(again(images), classifier(images))
        features = load_backbone(tmp_path / "classifier.safetensors")(images)
        torch.testing.assert_close(features, classifier.backbone(images))
    assert facts["classes"] == ["a", "b", "c"]
    save_backbone(tmp_path / "backbone.safetensors", classifier.backbone, network, ImagesConfig())
    with pytest.raises(CsmlError, match="csml finetune"):
        load_classifier(tmp_path / "backbone.safetensors")
