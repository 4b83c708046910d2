"""Generated images of objects whose class is their shape, with labels, boxes and instance masks."""

from csml.synthetic.scene import Scene, draw_scene
from csml.synthetic.shapes import CLASS_NAMES

__all__ = ["CLASS_NAMES", "Scene", "draw_scene"]
