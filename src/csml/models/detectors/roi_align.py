"""RoIAlign on the feature pyramid, on a CPU as one weighted sum of the pyramid's cells.

torchvision's RoIAlign is single-threaded on a CPU and processes one channel after the other: it took a fifth of a
training step. Every output value is a weighted sum of cells, the same for all channels, and torch has a fast parallel
kernel for that: `embedding_bag`, with the cells as its table.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.ops import MultiScaleRoIAlign
from torchvision.ops.poolers import LevelMapper


class PyramidRoIAlign(MultiScaleRoIAlign):
    """torchvision's MultiScaleRoIAlign, with a faster implementation on CPUs (not in exports).

    Args:
        names: maps of the pyramid to use, finest first.
        strides: strides of these maps in pixels of the image; powers of 2.
        side: side of the output in cells.
        samples: sampling points per side of a cell, which is their mean.
        usual_side, usual_level: a box of this side uses the map whose stride is 2 to the power of this level.
    """

    scales: list[float]
    map_levels: LevelMapper

    def __init__(
        self, names: list[str], strides: list[int], side: int, samples: int, usual_side: int, usual_level: int
    ) -> None:
        super().__init__(names, side, samples, canonical_scale=usual_side, canonical_level=usual_level)
        # torchvision would infer these from the first batch, wrongly if its images are much smaller than their padding.
        self.scales = [1 / stride for stride in strides]
        first, last = (stride.bit_length() - 1 for stride in (strides[0], strides[-1]))
        self.map_levels = LevelMapper(first, last, usual_side, usual_level)

    def forward(self, x: dict[str, Tensor], boxes: list[Tensor], image_shapes: list[tuple[int, int]]) -> Tensor:
        """Maps `(B, C, H, W)` by name and the boxes `(R_i, 4)` of each image → `(R, C, side, side)`."""
        maps = [x[name] for name in self.featmap_names]
        if maps[0].device.type != "cpu" or torch.onnx.is_in_onnx_export():
            cut: Tensor = super().forward(x, boxes, image_shapes)
            return cut
        # (B, H, W, C) of all levels, one cell per row; 32 bits, because sums of 16 numbers in bf16 lose too much.
        table = torch.cat([each.permute(0, 2, 3, 1).flatten(0, 2).float() for each in maps])
        with torch.no_grad():
            rows, weights = self._cells(maps, boxes)
        sums = F.embedding_bag(rows, table, mode="sum", per_sample_weights=weights)  # (R · side², C)
        side = self.output_size[0]
        cuts = sums.view(-1, side, side, sums.shape[1]).permute(0, 3, 1, 2)
        return cuts.to(maps[0].dtype)

    def _cells(self, maps: list[Tensor], boxes: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Rows of the table and weights of each output cell, `(R · side², 4 · samples²)` each."""
        levels = self.map_levels(boxes)  # (R,)
        sizes = torch.tensor([each.shape[2:] for each in maps])  # (L, 2)
        heights, widths = sizes[levels].unbind(1)
        cells = len(maps[0]) * sizes.prod(dim=1)
        starts = cells.cumsum(0) - cells  # the first row of each level
        images = torch.cat([torch.full((len(each),), image) for image, each in enumerate(boxes)])
        first = starts[levels] + images * heights * widths
        scaled = torch.cat(boxes).float() * torch.tensor(self.scales)[levels, None]  # (R, 4)
        columns, across = self._along(scaled[:, 0], scaled[:, 2], widths)
        lines, down = self._along(scaled[:, 1], scaled[:, 3], heights)
        lines = first[:, None, None] + lines * widths[:, None, None]
        # (R, side, 2 · samples) twice → (R, side, side, 2 · samples, 2 · samples)
        rows = lines[:, :, None, :, None] + columns[:, None, :, None, :]
        weights = down[:, :, None, :, None] * across[:, None, :, None, :] / self.sampling_ratio**2
        each = 4 * self.sampling_ratio**2
        return rows.view(-1, each).int(), weights.view(-1, each)

    def _along(self, start: Tensor, end: Tensor, cells: Tensor) -> tuple[Tensor, Tensor]:
        """Along one axis: the two cells next to each point, and their weights; `(R, side, 2 · samples)` each."""
        points = self.output_size[0] * self.sampling_ratio
        shares = (torch.arange(points) + 0.5) / points
        places = start[:, None] + (end - start).clamp(min=1)[:, None] * shares  # (R, points)
        inside = (places >= -1) & (places <= cells[:, None])
        places = torch.minimum(places.clamp(min=0), cells[:, None] - 1)
        before = places.long()
        after = torch.minimum(before + 1, cells[:, None] - 1)
        share = places - before
        both = torch.stack([before, after], dim=2)  # (R, points, 2)
        weights = torch.stack([1 - share, share], dim=2) * inside[:, :, None]
        shape = (len(start), self.output_size[0], 2 * self.sampling_ratio)
        return both.view(shape), weights.view(shape)
