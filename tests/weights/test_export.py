"""Exports, loaded by the libraries they are for."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision

from csml import load_backbone
from csml.api.exporting import export
from csml.config import BackboneConfig, ImagesConfig
from csml.models import build_backbone
from csml.weights import save_backbone
from csml.weights.export import detectron2_name

IMAGES = torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=["resnet18", "resnet50"])
def trained(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """A run directory with a backbone whose statistics are not the initial ones."""
    torch.manual_seed(0)
    net = build_backbone(request.param)
    net(torch.randn(8, 3, 64, 64))
    save_backbone(tmp_path / "backbone.safetensors", net, BackboneConfig(request.param), ImagesConfig(size=64))
    return tmp_path, request.param


def written(run: Path, to: str) -> Path:
    path = export(run, to).path
    assert [path] == list((run / "export").iterdir())
    return path


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


def test_onnxruntime_agrees_for_any_batch(trained: tuple[Path, str]) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    run, _ = trained
    session = onnxruntime.InferenceSession(str(written(run, "onnx")))
    expected = features(run).numpy()
    for count in (1, 3):
        (found,) = session.run(None, {"images": IMAGES[:count].numpy()})
        np.testing.assert_allclose(found, expected[:count], atol=1e-4)


def test_detectron2_finds_every_weight_under_the_name_it_looks_for(trained: tuple[Path, str]) -> None:
    """Its ResNet, as `build_resnet_backbone` names it: stem, res2 … res5, each convolution with its norm."""
    run, name = trained
    with written(run, "detectron2").open("rb") as file:
        stored = pickle.load(file)
    assert stored["matching_heuristics"] is True
    model = stored["model"]
    blocks, convs = {"resnet18": ((2, 2, 2, 2), 2), "resnet50": ((3, 4, 6, 3), 3)}[name]
    wanted = {"stem.conv1"} | {
        f"res{stage + 2}.{block}.conv{conv}"
        for stage, count in enumerate(blocks)
        for block in range(count)
        for conv in range(1, convs + 1)
    }
    wanted |= {f"res{stage}.0.shortcut" for stage in ((3, 4, 5) if name == "resnet18" else (2, 3, 4, 5))}
    parts = ("weight", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var")
    assert set(model) == {f"{conv}.{part}" for conv in wanted for part in parts}
    assert all(isinstance(value, np.ndarray) for value in model.values())
    net = load_backbone(run).state_dict()
    np.testing.assert_array_equal(model["res4.0.shortcut.norm.running_var"], net["layer3.0.downsample.1.running_var"])


def test_names_of_detectron2() -> None:
    assert detectron2_name("conv1.weight") == "stem.conv1.weight"
    assert detectron2_name("bn1.running_mean") == "stem.conv1.norm.running_mean"
    assert detectron2_name("layer4.2.conv3.weight") == "res5.2.conv3.weight"
    assert detectron2_name("layer2.0.bn2.bias") == "res3.0.conv2.norm.bias"
    assert detectron2_name("layer1.0.downsample.0.weight") == "res2.0.shortcut.weight"


@pytest.mark.parametrize("to", ["safetensors", "onnx"])
def test_networks_that_exist_only_here_have_formats_too(tmp_path: Path, to: str) -> None:
    if to == "onnx":
        pytest.importorskip("onnxscript")
    net = build_backbone("tiny").eval()
    save_backbone(tmp_path / "backbone.safetensors", net, BackboneConfig("tiny"), ImagesConfig(size=32))
    path = written(tmp_path, to)
    if to == "safetensors":
        with torch.no_grad():
            torch.testing.assert_close(load_backbone(path)(IMAGES), net(IMAGES))


@pytest.mark.parametrize(
    ("backbone", "small", "to", "told"),
    [
        ("tiny", False, "timm", "exists only in csml"),
        ("tiny", False, "detectron2", "exists only in csml"),
        ("resnet18", True, "detectron2", "7×7"),
        ("resnet18", True, "huggingface", "7×7"),
    ],
)
def test_what_a_library_cannot_take_is_refused_in_one_line(
    tmp_path: Path, backbone: str, small: bool, to: str, told: str
) -> None:
    from csml.errors import CsmlError

    net = build_backbone(backbone, small)
    save_backbone(tmp_path / "backbone.safetensors", net, BackboneConfig(backbone, small), ImagesConfig())
    with pytest.raises(CsmlError, match=told):
        export(tmp_path, to)


def test_nothing_is_overwritten_unasked(trained: tuple[Path, str]) -> None:
    from csml.errors import CsmlError

    run, _ = trained
    written(run, "torchvision")
    with pytest.raises(CsmlError, match="overwrite"):
        export(run, "torchvision")
    assert export(run, "torchvision", overwrite=True).path.exists()


def test_the_lines_it_returns_load_it(trained: tuple[Path, str]) -> None:
    run, _ = trained
    scope: dict[str, object] = {}
    exec(export(run, "torchvision").how, scope)
    with torch.no_grad():
        torch.testing.assert_close(scope["net"].eval()(IMAGES), features(run))  # type: ignore[attr-defined]
