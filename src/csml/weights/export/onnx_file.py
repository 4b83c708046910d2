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
    names = "" if classes is None else 'classes = json.loads(net.get_modelmeta().custom_metadata_map["classes"])\n'
    return (
        f"import {'json, ' if names else ''}numpy, onnxruntime\n"
        "from PIL import Image, ImageOps\n"
        f"net = onnxruntime.InferenceSession({str(path)!r})\n"
        f"{names}"
        f"{_load_lines(size, facts.get('eval_crop', 0.875), mean, std)}"
        f'{output} = net.run(None, {{"images": images}})[0]  # {shape}'
        f"{'' if classes is None else _SOFTMAX}"
    )


_SOFTMAX = """
shares = numpy.exp(logits - logits.max(axis=1, keepdims=True))
shares /= shares.sum(axis=1, keepdims=True)  # probabilities, in the order of classes"""


def _load_lines(size: int, crop: float, mean: tuple[float, ...], std: tuple[float, ...]) -> str:
    """Lines that define `load` and `images`: the pixels that csml itself would give the network."""
    wanted = f"(B, {len(mean)}, {size}, {size}) float32"
    if len(mean) not in (1, 3):  # Pillow does not read such files
        return f"# images: {wanted} in [0, 1], minus {_shown(mean)}, over {_shown(std)}\n"
    mode, axis = ("RGB", "") if len(mean) == 3 else ("L", "[:, :, None]")
    return f"""def load(path):
    photo = ImageOps.exif_transpose(Image.open(path)).convert("{mode}")
    side = round(min(photo.size) * {crop})  # the middle of the photo
    left, top = (photo.width - side) // 2, (photo.height - side) // 2
    middle = photo.crop((left, top, left + side, top + side)).resize(({size}, {size}), Image.Resampling.BILINEAR)
    pixels = numpy.asarray(middle, dtype="float32"){axis} / 255
    pixels = (pixels - numpy.float32({list(mean)})) / numpy.float32({list(std)})
    return pixels.transpose(2, 0, 1)[None]  # (1, {len(mean)}, {size}, {size})
images = numpy.concatenate([load(path) for path in ["IMAGE.jpg"]])  # {wanted}
"""


def _shown(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)
