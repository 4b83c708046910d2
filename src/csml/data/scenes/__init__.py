"""Images with objects on them, for detection: VOC and COCO files, and drawn scenes, all read to one form."""

from csml.data.scenes.annotations import Annotations, Objects, Scenes

__all__ = ["Annotations", "Objects", "Scenes"]
