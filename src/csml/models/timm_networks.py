"""timm's networks as backbones: four stage maps, the network's own feature, any image size, no dropout."""

import difflib
from typing import Any

from torch import Tensor, nn

from csml.config import STAGES
from csml.errors import CsmlError
from csml.light_imports import import_light
from csml.pixels import Normalization

_ANY_SIZE: tuple[dict[str, Any], ...] = (
    {"strict_img_size": False},  # Swin
    {"dynamic_img_size": True, "dynamic_img_pad": True},  # ViT
    {},
)
"""Arguments with which a family of networks accepts images of any size; each family rejects those of the others."""


def build_timm(name: str) -> nn.Module:
    """Build timm's network `name` with fresh weights and without its classifier.

    Args:
        name: timm's name, such as `tf_efficientnet_lite0`.
    """
    import_light("timm")  # takes a second
    import timm

    if not timm.is_model(name):
        close = difflib.get_close_matches(name, timm.list_models(), n=3, cutoff=0.4)
        hint = f"; did you mean timm:{' or timm:'.join(close)}?" if close else ""
        raise CsmlError(f"model.backbone: timm has no network {name!r}{hint}")
    net, _ = _created(name)
    if not hasattr(net, "forward_intermediates") or len(net.feature_info) < len(STAGES):
        raise CsmlError(
            f"model.backbone: timm:{name} does not give the feature maps of four stages; ResNet, RegNet, EfficientNet, "
            "MobileNet, ConvNeXt, Swin and ViT do"
        )
    _remove_dropout(net)
    return net


def any_size_options(name: str) -> dict[str, Any]:
    """The arguments of timm's `create_model` with which network `name` accepts images of any size."""
    return _created(name)[1]


def timm_outputs(net: Any, images: Tensor) -> tuple[list[Tensor], Tensor]:
    """The maps of the four stages, `(B, C, H, W)` each, and the network's feature `(B, F)`."""
    last, maps = net.forward_intermediates(images, indices=_stage_indices(net), output_fmt="NCHW")
    return maps, net.forward_head(last, pre_logits=True)


def timm_normalization(net: Any) -> Normalization:
    """Mean and standard deviation of the images that the network was designed for."""
    return Normalization(tuple(net.pretrained_cfg["mean"]), tuple(net.pretrained_cfg["std"]))


def timm_strides(net: Any) -> dict[int, int]:
    """Stride of each stage's feature map, in pixels of the image."""
    return {s: net.feature_info[index]["reduction"] for s, index in zip(STAGES, _stage_indices(net), strict=True)}


def stage_modules(net: Any) -> dict[int, str]:
    """The name of the last module of each stage."""
    return {stage: net.feature_info[index]["module"] for stage, index in zip(STAGES, _stage_indices(net), strict=True)}


def _created(name: str) -> tuple[Any, dict[str, Any]]:
    import timm

    for options in _ANY_SIZE:
        try:
            net = timm.create_model(name, pretrained=False, num_classes=0, **options)
            return net, options
        except TypeError:
            if not options:
                raise
    raise AssertionError


def _stage_indices(net: Any) -> list[int]:
    """The outputs of the network that serve as stages 1 to 4.

    A network that halves its resolution has a stage per resolution, and the coarsest four are used. A ViT has one
    resolution; its blocks at a quarter, half, three quarters and the end are the stages.
    """
    count, reductions = len(net.feature_info), {info["reduction"] for info in net.feature_info}
    if len(reductions) == 1:
        return [count * stage // len(STAGES) - 1 for stage in STAGES]
    return list(range(count - len(STAGES), count))


def _remove_dropout(net: nn.Module) -> None:
    """Dropout uses torch's global generator, which is not in the checkpoint, so a resumed run would differ."""
    for module in net.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "drop_prob", None), float):
            setattr(module, "drop_prob", 0.0)  # noqa: B010 (a name that torch's types do not know)
