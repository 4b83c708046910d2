"""Images with stable ids and random access, their labels, and batches of crops cut from them."""

from csml.data.images import ArrayImages, FolderImages, Images
from csml.data.open import DataSplits, open_data

__all__ = ["ArrayImages", "DataSplits", "FolderImages", "Images", "open_data"]
