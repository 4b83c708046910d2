"""An ONNX file of a backbone or a classifier, with metadata on its input and classes."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from csml.config import BackboneConfig
from csml.extras import extra
from csml.files import atomic_write
from csml.models.backbones import image_channels, normalization
from csml.models.classifier import Classifier
from csml.weights.metadata import input_size


def to_onnx(net: nn.Module, network: BackboneConfig, facts: dict[str, Any], path: Path) -> str:
    """Write an ONNX file for any batch size and one image size."""
    with extra("onnx", "to: onnx"):
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    size, classes = input_size(facts), facts["classes"] if isinstance(net, Classifier) else None
    output, shape = ("features", "(B, C)") if classes is None else ("logits", "(B, classes)")
    mean, std = normalization(net.backbone if isinstance(net, Classifier) else net)
    program = torch.onnx.export(
        net,
        (torch.zeros(2, image_channels(net), size, size),),
        input_names=["images"],
        output_names=[output],
        dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    known = {"mean": mean, "std": std, "size": size} | ({} if classes is None else {"classes": classes})
    program.model.metadata_props.update({key: json.dumps(value) for key, value in known.items()})
    with atomic_write(path) as temporary:
        program.save(str(temporary), external_data=False)
    side = round(size / facts.get("eval_crop", 0.875))
    names = "" if classes is None else 'classes = json.loads(net.get_modelmeta().custom_metadata_map["classes"])\n'
    return (
        f"import {'json, ' if names else ''}onnxruntime\n"
        f"net = onnxruntime.InferenceSession({str(path)!r})\n"
        f"{names}"
        f"# resize the shorter side of a photo to {side} pixels (bilinear), cut out the middle {size} × {size}\n"
        f"# images: (B, {len(mean)}, {size}, {size}) float32{' RGB' if len(mean) == 3 else ''} in [0, 1], "
        f"minus {_shown(mean)}, over {_shown(std)}\n"
        f'{output} = net.run(None, {{"images": images}})[0]  # {shape}'
        f"{'' if classes is None else '; softmax makes probabilities of them'}"
    )


def _shown(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)
