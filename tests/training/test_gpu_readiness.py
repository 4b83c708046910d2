"""A whole step of CsMl as a GPU would run it, on a machine without one: nothing waits for the device, nothing is on
another device.

The step is traced with fake tensors, which know their device but have no values. Whoever asks for the value of a tensor
on the GPU (`item`, `bool`, an index by a mask) is refused by torch; whoever copies one to the CPU, by `ImaginedGpu`.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from conftest import configured
from csml.config import PretrainConfig
from csml.methods import StepResult
from csml.pixels import normalization_of
from csml.training.build import build_method, build_optimizer
from csml.views.recipe import crop_specs, make_views

GPU = torch.device("cuda", 0)
BATCH, NEIGHBORS, IMAGES = 8, 5, 100


class Synced(AssertionError):
    """The host waits for the GPU."""


class ImaginedGpu(TorchDispatchMode):
    """Whatever touches the GPU is only traced, and may not be copied back; what stays on the CPU is computed."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves = tree_leaves((args, kwargs or {}))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        on_gpu = any(tensor.device.type == "cuda" for tensor in tensors)
        if not on_gpu and not any(isinstance(leaf, torch.device) and leaf.type == "cuda" for leaf in leaves):
            with unset_fake_temporarily():
                return func(*args, **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        into = args[0] if func.__name__.startswith("copy_") else result
        if on_gpu and "copy" in func.__name__ and isinstance(into, Tensor) and into.device.type == "cpu":
            raise Synced(f"{func} copies from the GPU to the CPU")
        return result


def step(config: PretrainConfig) -> StepResult:
    """Views, loss, gradients, queue and weights of one step."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        method = build_method(config, IMAGES, device=GPU).to(GPU).to(memory_format=torch.channels_last)
        optimizer = build_optimizer([(method.parameters(), 0.1)], config.optimizer)
        with ImaginedGpu():
            ids = torch.arange(BATCH).to(GPU)
            views = make_views(
                {spec.name: crops(spec.size).to(GPU) for spec in crop_specs(config)}, ids,
                ids.expand(config.views.positives, BATCH), ids[:, None].expand(BATCH, NEIGHBORS), config.views,
                config.augmentation, torch.Generator().manual_seed(0), torch.channels_last, by=normalization_of(3),
            )  # fmt: skip
            with torch.autocast("cuda", torch.bfloat16):
                result: StepResult = method(views, torch.Generator().manual_seed(0))
            result.loss.backward()
            method.after_backward(result)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    return result


def crops(size: int) -> Tensor:
    return torch.zeros(BATCH, 3, size, size, dtype=torch.uint8)


@pytest.mark.parametrize(
    "words",
    [[], ["--views.mix", "mixup"], ["--views.symmetric", "true"], ["--views.small_crops", "2"],
     ["--optimizer.kind", "adamw"]],
    ids=["csml", "mixup", "symmetric", "small crops", "adamw"],
)  # fmt: skip
def test_a_step_never_waits_for_the_gpu(words: list[str]) -> None:
    result = step(configured("pretrain", "--preset", "demo", "--augmentation.blur", "0.5", *words))
    assert result.loss.device == GPU
    assert all(value.device == GPU for value in result.metrics.values())


WAITS = {
    "item": lambda x: x.sum().item(),
    "bool": lambda x: bool(x.sum() > 0),
    "cpu": lambda x: x.cpu(),
    "copy": lambda x: torch.zeros(3).copy_(x),
    "mask": lambda x: x[x > 0],
    "device": lambda x: x + torch.zeros(3),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_what_would_wait_or_mix_devices_is_refused(wait: Callable[[Tensor], object]) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True), ImaginedGpu():
        on_gpu = torch.ones(3).to(GPU)
        with pytest.raises((RuntimeError, Synced, NotImplementedError)):
            wait(on_gpu)
