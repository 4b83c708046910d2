"""Objects passed as data: tensors of any kind, and labels that are not classes."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from csml.data.datasets import images_of
from csml.errors import CsmlError

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), dtype=np.uint8)


class WithAnnotations(list[Any]):
    """As torchvision's VOCDetection: `targets` has the files of annotations, and items have their contents."""

    @property
    def targets(self) -> list[str]:
        return [f"Annotations/{number}.xml" for number in range(len(self))]


def labelled(label: Any) -> list[Any]:
    return [(image, label) for image in PIXELS]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (labelled({"boxes": [[0, 0, 4, 4]]}), "dicts"),
        (WithAnnotations(labelled({"annotation": {}})), "dicts"),
        (labelled([{"bbox": [0, 0, 4, 4]}]), "lists"),
        (labelled(torch.zeros(40)), "tensors"),
        (labelled(np.zeros(40)), "ndarrays"),
        ((PIXELS, torch.zeros(4, 40)), "ndarrays"),
        ((PIXELS, [[1], [], [2, 3], [4]]), "lists"),
    ],
)
def test_labels_that_are_no_classes_are_refused_in_one_line(data: Any, kind: str) -> None:
    with pytest.raises(CsmlError, match=f"^data: the labels are {kind}, not classes; give items that are an image"):
        images_of(data)


def test_labels_of_text_in_targets_are_classes() -> None:
    assert images_of(WithAnnotations(labelled("cat"))).classes[0] == "Annotations/0.xml"
    assert images_of(WithAnnotations(PIXELS)).labels.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("of", [Tensor.bfloat16, Tensor.requires_grad_, Tensor.half])
def test_a_tensor_is_read_as_the_array_of_its_values(of: Any) -> None:
    values = torch.from_numpy(PIXELS).gt(127).float()  # exact in every precision
    expected = PIXELS > 127
    whole, one = images_of(of(values.clone())), images_of([of(values[0].permute(2, 0, 1).clone())])
    assert np.array_equal(np.asarray(whole.read(3)) == 255, expected[3])
    assert np.array_equal(np.asarray(one.read(0)) == 255, expected[0])


def test_numbers_that_are_no_pixels_are_refused() -> None:
    for dtype in (torch.float8_e4m3fn, torch.int64):
        with pytest.raises(CsmlError, match=r"data: expected uint8 images or floats in \[0, 1\], got .*(float8|int64)"):
            images_of(torch.zeros(2, 8, 8, 3).to(dtype))
