"""Query and key views made from the uint8 crops of a batch; independent of the loss."""

from csml.pixels import CropSpec
from csml.views.mixing import cutmix, mixup
from csml.views.recipe import Views, crop_specs, make_views

__all__ = ["CropSpec", "Views", "crop_specs", "cutmix", "make_views", "mixup"]
