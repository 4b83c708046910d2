"""Images with stable ids and random access, their labels, and batches of crops."""

from csml.light_imports import import_light

import_light("torchvision")  # before the modules below import it

from csml.data.images import ArrayImages, FolderImages, Images  # noqa: E402
from csml.data.open import DataSplits, open_data  # noqa: E402

__all__ = ["ArrayImages", "DataSplits", "FolderImages", "Images", "open_data"]
