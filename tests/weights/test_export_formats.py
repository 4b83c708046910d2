"""Every kind of network in every format that can hold it, loaded by the lines that the export returns."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image

import csml
from csml import load_backbone
from csml.api.exporting import export
from csml.config import TORCHVISION, BackboneConfig, ImagesConfig
from csml.errors import CsmlError
from csml.models import build_backbone
from csml.models.backbones import normalization
from csml.models.classifier import Classifier
from csml.synthetic import draw_scene
from csml.weights import save_backbone, save_classifier, weight_facts
from csml.weights.export import FORMATS, formats_of

IMAGES = torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))
NETWORKS = [
    BackboneConfig("nano"),
    BackboneConfig("tiny", small_images=True),
    BackboneConfig("resnet18", small_images=True),
    BackboneConfig("timm:resnet18"),
    BackboneConfig("timm:test_resnet"),
    BackboneConfig("timm:test_efficientnet"),
    BackboneConfig("timm:test_convnext"),
    BackboneConfig("timm:test_vit"),
    BackboneConfig("timm:swin_tiny_patch4_window7_224"),
]
AS_ONNX = {"timm:test_efficientnet", "timm:test_vit"}
"""Writing a file takes seconds."""


def saved(folder: Path, network: BackboneConfig) -> torch.Tensor:
    """Write a run directory with a network whose statistics are not the initial ones; returns its features."""
    torch.manual_seed(0)
    net = build_backbone(network.backbone, network.small_images)
    net(torch.randn(4, 3, 64, 64))
    save_backbone(folder / "backbone.safetensors", net, network, ImagesConfig(size=64))
    with torch.no_grad():
        return net.eval()(IMAGES)


def title(value: object) -> str:
    return f"{value.backbone}{'-small' * value.small_images}" if isinstance(value, BackboneConfig) else str(value)


def without_load(how: str) -> str:
    """The lines of an export, with the definition of `load` left to the caller."""
    return re.sub(r"def load.*?(?=\nimages)", "", how, flags=re.DOTALL)


@pytest.mark.parametrize("network", NETWORKS, ids=title)
def test_the_lines_that_an_export_returns_load_what_computes_the_same(network: BackboneConfig, tmp_path: Path) -> None:
    expected = saved(tmp_path, network)
    for to in formats_of(network):
        if to == "detectron2" or (to == "onnx" and network.backbone not in AS_ONNX):
            continue
        path, how = export(tmp_path, to)
        assert ":" not in path.name
        scope = {"load": lambda path: IMAGES.numpy()}
        before = list(sys.path)
        exec(without_load(how), scope)
        sys.path[:] = before
        sys.modules.pop("network", None)
        if to == "onnx":
            np.testing.assert_allclose(scope["features"], expected, atol=1e-4)
            continue
        with torch.no_grad():
            torch.testing.assert_close(scope["net"].eval()(IMAGES), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("to", ["timm", "safetensors", "huggingface"])
def test_csml_reads_every_file_of_weights_that_it_exports(tmp_path: Path, to: str) -> None:
    network = BackboneConfig("timm:test_vit")
    expected = saved(tmp_path, network)
    path = export(tmp_path, to).path
    path = path / "model.safetensors" if to == "huggingface" else path
    with torch.no_grad():
        torch.testing.assert_close(load_backbone(path)(IMAGES), expected)
    assert weight_facts(path)["size"] == 64
    assert weight_facts(path)["mean"] == [0.5, 0.5, 0.5]


def test_every_network_has_formats_and_every_format_has_networks() -> None:
    held = {network.backbone: formats_of(network) for network in NETWORKS if not network.small_images}
    assert held["nano"] == ["onnx", "safetensors", "huggingface"]
    assert held["timm:resnet18"] == list(FORMATS)
    assert held["timm:test_vit"] == ["timm", "onnx", "safetensors", "huggingface"]


def test_a_network_for_images_of_other_channels_has_two_formats(tmp_path: Path) -> None:
    net = build_backbone("nano", channels=5).eval()
    save_backbone(tmp_path / "backbone.safetensors", net, BackboneConfig("nano"), ImagesConfig(size=32))
    with pytest.raises(CsmlError, match="3 channels, not 5; choose onnx or safetensors"):
        export(tmp_path, "huggingface")
    images = torch.rand(1, 5, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(load_backbone(export(tmp_path, "safetensors").path)(images), net(images))


@pytest.mark.parametrize("name", TORCHVISION)
def test_timm_s_resnets_have_torchvision_s_weights(name: str) -> None:
    with torch.device("meta"):
        ours = build_backbone(f"timm:{name}").state_dict()
        theirs = getattr(torchvision.models, name)(weights=None).state_dict()
    assert {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in theirs.items() if not k.startswith("fc.")}


WITHOUT_CSML = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("csml", "torchvision", "timm"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Without())
import json, torch
folder, images = sys.argv[1:]
sys.path.insert(0, folder)
from network import load
with torch.no_grad():
    print(json.dumps(load(folder)(torch.load(images)).tolist()))
"""


@pytest.mark.parametrize("network", [BackboneConfig("nano"), BackboneConfig("small", small_images=True)], ids=title)
def test_a_small_network_brings_the_code_that_builds_it_without_csml(network: BackboneConfig, tmp_path: Path) -> None:
    expected = saved(tmp_path, network)
    folder = export(tmp_path, "huggingface").path
    assert {path.name for path in folder.iterdir()} == {"model.safetensors", "config.json", "network.py"}
    torch.save(IMAGES, tmp_path / "images.pt")
    command = [sys.executable, "-c", WITHOUT_CSML, str(folder), str(tmp_path / "images.pt")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    torch.testing.assert_close(torch.tensor(json.loads(done.stdout)), expected, atol=1e-5, rtol=1e-5)
    config = json.loads((folder / "config.json").read_text())
    assert (config["size"], config["mean"][0]) == (64, 0.485)


def test_the_folder_of_a_timm_network_takes_images_of_other_sizes(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    saved(tmp_path, BackboneConfig("timm:test_vit"))
    net = timm.create_model(f"local-dir:{export(tmp_path, 'huggingface').path}", pretrained=True, num_classes=0)
    ours, images = load_backbone(tmp_path), torch.rand(2, 3, 100, 100)
    with torch.no_grad():
        torch.testing.assert_close(net.eval()(images), ours(images))
    assert tuple(timm.data.resolve_model_data_config(net)["mean"]) == normalization(ours).mean == (0.5, 0.5, 0.5)


def test_a_classifier_as_onnx_has_the_names_of_its_classes(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    network, images = BackboneConfig("nano"), ImagesConfig(size=32)
    classifier = Classifier(build_backbone("nano"), 3).eval()
    save_backbone(tmp_path / "backbone.safetensors", classifier.backbone, network, images)
    save_classifier(tmp_path / "classifier.safetensors", classifier, network, images, ("ant", "bee", "cat"))
    with pytest.raises(CsmlError, match="onnx only"):
        export(tmp_path, "safetensors", part="classifier")
    path, how = export(tmp_path, "onnx", part="classifier")
    pixels = np.random.default_rng(0).random((2, 3, 32, 32), dtype=np.float32)
    scope: dict[str, Any] = {"load": lambda path: pixels}
    exec(without_load(how), scope)
    with torch.no_grad():
        expected = classifier(torch.from_numpy(pixels))
    np.testing.assert_allclose(scope["logits"], expected, atol=1e-5)
    assert scope["classes"] == ["ant", "bee", "cat"]
    known = onnxruntime.InferenceSession(str(path)).get_modelmeta().custom_metadata_map
    assert json.loads(known["size"]) == 32
    assert json.loads(known["std"]) == [0.229, 0.224, 0.225]


@pytest.mark.parametrize("channels", [3, 1])
def test_the_lines_of_a_classifier_read_photos_and_find_what_predict_finds(tmp_path: Path, channels: int) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    images = ImagesConfig(size=32, eval_size=48, eval_crop=0.8, channels=channels)
    classifier = Classifier(build_backbone("nano", channels=channels), 3).eval()
    torch.nn.init.normal_(classifier.fc.weight, std=1.0)  # so that the probabilities differ from photo to photo
    network, weights = BackboneConfig("nano"), tmp_path / "classifier.safetensors"
    save_classifier(weights, classifier, network, images, ("ant", "bee", "cat"))
    photos = [tmp_path / f"{number}.jpg" for number in range(4)]
    for number, (photo, size) in enumerate(zip(photos, [(90, 70), (64, 131), (48, 48), (40, 51)], strict=True)):
        drawn = Image.fromarray(draw_scene(160, np.array([number]), np.random.default_rng(number)).image)
        turned = Image.Exif()
        turned[0x0112] = 6 if number == 1 else 1  # the second lies on its side, as a telephone stores it
        drawn.resize(size).save(photo, quality=95, exif=turned)
    how = export(weights, "onnx", part="classifier").how
    assert "\nimport csml" not in how and "torch" not in how
    scope: dict[str, Any] = {}
    exec(how.replace('["IMAGE.jpg"]', repr(list(map(str, photos)))), scope)
    predicted = csml.predict(weights, photos, **{"hardware.precision": "32-true"})
    assert [scope["classes"][label] for label in scope["shares"].argmax(axis=1)] == predicted.labels
    np.testing.assert_allclose(scope["shares"].max(axis=1), predicted.probabilities, atol=0.02)
    assert np.ptp(scope["shares"], axis=0).max() > 0.1, "a test with equal probabilities shows nothing"
