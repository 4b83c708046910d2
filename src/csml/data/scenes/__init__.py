"""Images with annotated objects, for detection: VOC, COCO and synthetic scenes in one form."""

from csml.extras import extra

with extra("detect", "detection"):  # before any module of this package imports it
    import pycocotools  # noqa: F401

from csml.data.scenes.annotations import Annotations, Objects, Scenes

__all__ = ["Annotations", "Objects", "Scenes"]
