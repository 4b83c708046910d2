"""Exports, loaded by the libraries they are for."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision

from csml import load_backbone
from csml.api.exporting import export
from csml.config import BackboneConfig, ImagesConfig
from csml.errors import CsmlError
from csml.models import build_backbone
from csml.weights import save_backbone
from csml.weights.export import formats_of

IMAGES = torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=["resnet18", "resnet50"])
def trained(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """A run directory with a backbone whose statistics are not the initial ones."""
    torch.manual_seed(0)
    net = build_backbone(request.param)
    net(torch.randn(8, 3, 64, 64))
    save_backbone(
        tmp_path / "backbone.safetensors", net, BackboneConfig(request.param), ImagesConfig(size=32, eval_size=64)
    )
    return tmp_path, request.param


def written(run: Path, to: str) -> Path:
    path = export(run, to).path
    assert [path] == list((run / "export").iterdir())
    return path


@pytest.mark.parametrize(
    ("to", "ending"),
    [
        ("onnx", ".onnx"),
        ("safetensors", ".safetensors"),
        ("timm", "-timm.safetensors"),
        ("torchvision", "-torchvision.pth"),
    ],
)
def test_a_file_says_once_what_it_is(trained: tuple[Path, str], to: str, ending: str) -> None:
    run, name = trained
    pytest.importorskip({"onnx": "onnxscript", "timm": "timm"}.get(to, "torch"))
    assert written(run, to).name == f"{name}{ending}"


def features(run: Path) -> torch.Tensor:
    with torch.no_grad():
        return load_backbone(run)(IMAGES)


def test_torchvision_loads_it_strictly(trained: tuple[Path, str]) -> None:
    run, name = trained
    net = getattr(torchvision.models, name)(weights=None)
    net.fc = torch.nn.Identity()
    net.load_state_dict(torch.load(written(run, "torchvision"), weights_only=True), strict=True)
    with torch.no_grad():
        torch.testing.assert_close(net.eval()(IMAGES), features(run))


def test_timm_loads_it_strictly(trained: tuple[Path, str]) -> None:
    timm = pytest.importorskip("timm")
    from safetensors.torch import load_file

    run, name = trained
    net = timm.create_model(name, num_classes=0)
    net.load_state_dict(load_file(written(run, "timm")), strict=True)
    with torch.no_grad():
        torch.testing.assert_close(net.eval()(IMAGES), features(run), atol=1e-5, rtol=1e-5)


def test_timm_loads_the_folder_as_from_the_hugging_face_hub(trained: tuple[Path, str]) -> None:
    timm = pytest.importorskip("timm")
    run, _ = trained
    net = timm.create_model(f"local-dir:{written(run, 'huggingface')}", pretrained=True, num_classes=0)
    with torch.no_grad():
        torch.testing.assert_close(net.eval()(IMAGES), features(run), atol=1e-5, rtol=1e-5)
    assert tuple(timm.data.resolve_model_data_config(net)["input_size"]) == (3, 64, 64)


@pytest.mark.parametrize("trained", ["resnet18"], indirect=True)  # a ResNet-50 takes twice as long
def test_onnxruntime_agrees_for_any_batch(trained: tuple[Path, str]) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    run, _ = trained
    session = onnxruntime.InferenceSession(str(written(run, "onnx")))
    expected = features(run).numpy()
    for count in (1, 3):
        (found,) = session.run(None, {"images": IMAGES[:count].numpy()})
        np.testing.assert_allclose(found, expected[:count], atol=1e-4)


@pytest.mark.parametrize(
    ("backbone", "small", "to", "message"),
    [
        ("tiny", False, "timm", "exists only in csml"),
        ("tiny", False, "detectron2", "exists only in csml"),
        ("resnet18", True, "detectron2", "7×7"),
        ("resnet18", True, "huggingface", "7×7"),
        ("timm:test_convnext", False, "torchvision", "choose timm, onnx, safetensors or huggingface"),
        ("timm:test_vit", False, "detectron2", "has no network timm:test_vit"),
    ],
)
def test_what_a_library_cannot_take_is_refused_in_one_line(
    tmp_path: Path, backbone: str, small: bool, to: str, message: str
) -> None:
    net = build_backbone(backbone, small)
    save_backbone(tmp_path / "backbone.safetensors", net, BackboneConfig(backbone, small), ImagesConfig())
    with pytest.raises(CsmlError, match=message):
        export(tmp_path, to)


def test_nothing_is_overwritten_unasked(trained: tuple[Path, str]) -> None:
    run, _ = trained
    written(run, "torchvision")
    with pytest.raises(CsmlError, match="overwrite"):
        export(run, "torchvision")
    assert export(run, "torchvision", overwrite=True).path.exists()


@pytest.mark.parametrize(
    ("backbone", "format"), [("resnet18", "torchvision"), ("timm:regnetx_002", "timm"), ("nano", "onnx")]
)
def test_the_format_follows_from_the_network_if_none_is_given(backbone: str, format: str) -> None:
    assert formats_of(BackboneConfig(backbone=backbone))[0] == format
