"""From uint8 crops to the query and key views of a batch; knows nothing of the loss."""

from csml.views.mixing import cutmix, mixup
from csml.views.recipe import CropSpec, Views, crop_specs, make_views

__all__ = ["CropSpec", "Views", "crop_specs", "cutmix", "make_views", "mixup"]
