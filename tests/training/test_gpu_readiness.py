"""A whole step as a GPU would run it, on a machine without one: nothing waits for the device, nothing mixes devices.

Torch's device `meta` stands for the GPU. Its tensors have shapes but no values, so a step is only traced, and backward
works where no driver is installed. `ImaginedGpu` refuses what would make the host wait for a real GPU: values asked for
(`item`, `bool`), shapes that depend on values (`nonzero`, an index by a mask), copies to the host; and operations on
tensors of both devices.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from conftest import configured
from csml.config import PretrainConfig
from csml.methods import StepResult
from csml.pixels import normalization_of
from csml.runs.metrics import EpochMeans
from csml.training.build import build_method, build_optimizer
from csml.views.recipe import crop_specs, make_views

GPU = torch.device("meta")
BATCH, NEIGHBORS, IMAGES = 8, 5, 100
COPIES = {"_to_copy", "copy_", "_copy_from"}
ASKS_FOR_VALUES = {
    "_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "masked_select", "_unique2", "unique_dim",
    "unique_consecutive", "bincount", "repeat_interleave",
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_autocast_on_meta(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.autocast` refuses the device `meta`, also where it is to be switched off; here it is never on."""
    real = torch.autocast
    monkeypatch.setattr(
        torch,
        "autocast",
        lambda kind, *args, **kwargs: nullcontext() if kind == "meta" else real(kind, *args, **kwargs),
    )


class NotReady(AssertionError):
    """The host would wait for the GPU, or two devices are mixed."""


class ImaginedGpu(TorchDispatchMode):
    """Refuses what a step on a GPU should not do."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func.overloadpacket.__name__, kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if not any(tensor.device == GPU for tensor in tensors):
            return func(*args, **kwargs)
        if name in ASKS_FOR_VALUES or (
            name == "index" and any(t.dtype in (torch.bool, torch.uint8) for t in tensors[1:])
        ):
            raise NotReady(f"{func} waits for the GPU")
        if name in COPIES:
            into = args[0].device if name == "copy_" else kwargs.get("device")
            if into is not None and into != GPU:
                raise NotReady(f"{func} copies from the GPU to the host")
        elif mixed := [tensor for tensor in tensors if tensor.device != GPU and tensor.dim()]:
            raise NotReady(f"{func} is given a tensor on {mixed[0].device} beside those on the GPU")
        return func(*args, **kwargs)


def step(config: PretrainConfig, meddle: Callable[[StepResult], object] = lambda result: None) -> StepResult:
    """Views, loss, gradients, queue, weights and metrics of one step; `meddle` stands in the middle of it."""
    method = build_method(config, IMAGES).to(GPU).to(memory_format=torch.channels_last)
    optimizer = build_optimizer([(method.parameters(), 0.1)], config.optimizer)
    for group in optimizer.param_groups:
        group["fused"] = False  # there is no such kernel for `meta`; the others compute the same
    crops = {spec.name: torch.zeros(BATCH, 3, spec.size, spec.size, dtype=torch.uint8) for spec in crop_specs(config)}
    ids, generator = torch.arange(BATCH), torch.Generator().manual_seed(0)
    neighbors, omega = ids.expand(config.views.positives, BATCH), ids[:, None].expand(BATCH, NEIGHBORS)
    means = EpochMeans()
    with ImaginedGpu():
        views = make_views(
            {name: crop.to(GPU) for name, crop in crops.items()}, ids.to(GPU), neighbors.to(GPU), omega.to(GPU),
            config.views, config.augmentation, generator, torch.channels_last, by=normalization_of(3),
        )  # fmt: skip
        result: StepResult = method(views, generator)
        meddle(result)
        result.loss.backward()
        means.add(result.metrics, BATCH)
        method.after_backward(result)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return result


CASES = {
    "csml": [],
    "moco": ["--views.cross_sample", "false", "--views.mix", "none"],
    "mixup per sample": ["--views.mix", "mixup", "--views.mix_per_sample", "true"],
    "cutmix per sample": ["--views.mix_per_sample", "true"],
    "symmetric": ["--views.symmetric", "true"],
    "small crops": ["--views.small_crops", "2"],
    "known positives": ["--contrast.mask_known", "true", "--contrast.empty_queue", "true"],
    "solarize": ["--augmentation.solarize", "0.5"],
    "adamw": ["--optimizer.kind", "adamw"],
    "lars": ["--optimizer.kind", "lars"],
}


@pytest.mark.parametrize("words", CASES.values(), ids=CASES)
def test_a_step_never_waits_for_the_gpu(words: list[str]) -> None:
    result = step(configured("pretrain", "--preset", "demo", "--augmentation.blur", "0.5", *words))
    assert result.loss.device == GPU
    assert {value.device for value in result.metrics.values()} == {GPU}


@pytest.mark.parametrize("framework", ["byol", "simsiam"])
def test_a_step_of_another_framework_never_waits_for_the_gpu(framework: str) -> None:
    result = step(configured("pretrain", "--preset", f"demo-{framework}"))
    assert result.loss.device == GPU


WAITS: dict[str, Callable[[Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x.sum()),
    "bool": lambda x: bool(x.sum() > 0),
    "cpu": lambda x: x.cpu(),
    "copy": lambda x: torch.zeros(3).copy_(x),
    "mask": lambda x: x[x > 0],
    "nonzero": lambda x: x.nonzero(),
    "unique": lambda x: x.unique(),
    "equal": lambda x: torch.equal(x, x),
    "another device": lambda x: x + torch.zeros(3),
    "an index on the host": lambda x: x[torch.arange(2)],
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_a_step_that_waits_or_mixes_devices_is_refused(wait: Callable[[Tensor], object]) -> None:
    """The same step with one line too many."""
    with pytest.raises(NotReady):
        step(configured("pretrain", "--preset", "demo"), lambda result: wait(result.loss.detach().repeat(3)))
