"""An ONNX file of a detector: an image of any size in, boxes in pixels, labels, scores and masks out."""

import json
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from csml.extras import extra
from csml.files import atomic_write
from csml.models.detectors import Detector

_OPSET = 17
_TRACED = (160, 192)
"""Height and width of the image for tracing; the exported file accepts other sizes."""


class _OneImage(nn.Module):
    """A detector for a single, already resized image `(3, h, w)` in [0, 1]."""

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        (found,), _, _ = self.detector.run_network([image])
        outputs = (found["boxes"], found["labels"] - 1, found["scores"])
        return (*outputs, found["masks"][:, 0]) if "masks" in found else outputs


def detector_to_onnx(detector: Detector, facts: dict[str, Any], path: Path) -> str:
    """Write an ONNX file for one image of any size; returns the lines of Python that load it."""
    with extra("onnx", "to: onnx"):
        import onnx
    names = ["boxes", "labels", "scores", *(["masks"] if facts["masks"] else [])]
    axes = {"image": {1: "height", 2: "width"}, **{name: {0: "objects"} for name in names}}
    with atomic_write(path) as temporary:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tracing warns about every shape
            # Only the older exporter supports torchvision's proposals, whose number depends on the image.
            torch.onnx.export(
                _OneImage(detector).cpu().eval(),
                (torch.rand(3, *_TRACED, generator=torch.Generator().manual_seed(0)),),
                str(temporary),
                input_names=["image"],
                output_names=names,
                dynamic_axes=axes,
                opset_version=_OPSET,
                dynamo=False,
            )
        model = onnx.load(str(temporary))
        known = {key: facts[key] for key in ("classes", "test_side", "max_side", "min_score") if key in facts}
        for key, value in known.items():
            model.metadata_props.add(key=key, value=json.dumps(value))
        onnx.save(model, str(temporary))
    side, longest = facts["test_side"], facts["max_side"]
    masks = "\n# masks: (D, 28, 28) in [0, 1], each fills its box" if facts["masks"] else ""
    return (
        "import json, numpy, onnxruntime\n"
        "from PIL import Image\n"
        f"net = onnxruntime.InferenceSession({str(path)!r})\n"
        'classes = json.loads(net.get_modelmeta().custom_metadata_map["classes"])\n'
        'photo = Image.open("IMAGE.jpg").convert("RGB")\n'
        f"scale = min({side} / min(photo.size), {longest} / max(photo.size))\n"
        "small = photo.resize([round(side * scale) for side in photo.size], Image.Resampling.BILINEAR)\n"
        'image = numpy.asarray(small, dtype="float32").transpose(2, 0, 1) / 255  # (3, h, w), not normalised\n'
        f'{", ".join(names)} = net.run(None, {{"image": image}})\n'
        f"boxes /= scale  # (D, 4): x0, y0, x1, y1 in pixels of the photo; labels index classes{masks}"
    )
