"""csml: learn visual representations from unlabelled images by cross-sample, multi-level contrast (CsMl, ICCV 2021)."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from csml.tiles import avoid_half_offered_tiles

if TYPE_CHECKING:
    from csml.weights import load_backbone as load_backbone
    from csml.weights import load_detector as load_detector

__version__ = version("csml")
__all__ = ["__version__", "load_backbone", "load_detector"]

avoid_half_offered_tiles()


def __getattr__(name: str) -> Any:
    # Imported when they are asked for: `csml --help` should not wait for torch.
    if name in ("load_backbone", "load_detector"):
        import csml.weights

        return getattr(csml.weights, name)
    raise AttributeError(f"module 'csml' has no attribute {name!r}")
