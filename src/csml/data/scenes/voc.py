"""Pascal VOC's XML files, one per image: in VOC's folders with lists of names, beside the images, or anywhere."""

from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from csml.data.decode import EXTENSIONS, DecodeError
from csml.data.scenes.folder import Folder
from csml.data.scenes.instance_masks import read_instances, with_masks
from csml.data.scenes.raw_annotations import Part, RawAnnotations, RawObject, RawScene, Repairs
from csml.errors import CsmlError, some
from csml.files import require_file
from csml.progress import watched

_SETS = ("ImageSets/Main", "ImageSets/Segmentation")
_SPLITS = (("trainval", "test"), ("train", "val"), ("train", "test"))
"""Names of the training and test lists; the first pair that exists is used."""
_LOOKED_AT = 5
"""Number of XML files of a folder that are opened to check whether they are annotations."""


def is_voc(folder: Folder) -> bool:
    return any(_is_annotation(file) for file in folder.with_suffix(".xml")[:_LOOKED_AT])


def voc_parts(folder: Folder) -> list[Part]:
    """VOC's lists if there are any, such as `trainval` or, with several years, `VOC2007/trainval`; else the XML files
    grouped by folder: train/, test/, …"""
    if lists := _lists(folder):
        return lists
    by_role: dict[str | None, list[Path]] = {}
    for file in folder.with_suffix(".xml"):
        by_role.setdefault(folder.role(file), []).append(file)
    return [Part(role or "all", role, partial(_read_files, folder, files)) for role, files in by_role.items()]


def _is_annotation(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return b"<annotation" in opened.read(2048)
    except OSError:
        return False


def _lists(folder: Folder) -> list[Part]:
    """The lists of all years. VOC's convention: train on trainval of all years, and test on the first year that has a
    test list, because that of VOC 2012 is not public."""
    found: dict[str, tuple[Path, Path]] = {}  # list name → year, file
    for file in folder.with_suffix(".txt"):
        year = file.parents[2]
        if year.is_relative_to(folder.root) and any(file.parent == year / place for place in _SETS):
            prefix = "" if year == folder.root else f"{folder.relative(year)}/"
            prefix += "Segmentation/" if file.parent.name == "Segmentation" and (year / _SETS[0]).is_dir() else ""
            found[f"{prefix}{file.stem}"] = (year, file)
    roles: dict[str, str] = {}
    for train, test in _SPLITS:
        train_lists, test_lists = (
            [name for name in found if Path(name).name == wanted and Path(name).parent.name != "Segmentation"]
            for wanted in (train, test)
        )
        if train_lists and test_lists:
            roles = {**dict.fromkeys(train_lists, "train"), test_lists[0]: "test"}
            break
    return [
        Part(name, roles.get(name), partial(_read_list, folder, year, file)) for name, (year, file) in found.items()
    ]


def _read_list(folder: Folder, year: Path, list_file: Path, repairs: Repairs) -> RawAnnotations:
    try:
        lines = list_file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CsmlError(f"train, test: cannot read the list {list_file}") from error
    stems = [words[0].removesuffix(".jpg").removesuffix(".xml") for line in lines if (words := line.split())]
    if not stems:
        raise CsmlError(f"train, test: the list {folder.relative(list_file)} of {folder.root} is empty")
    annotations = next((path for path in (year / "Annotations", year / "annotations") if path.is_dir()), year)
    scenes = []
    for stem in watched(stems, "reading annotations", total=len(stems)):
        scene = _read_annotation(folder, annotations / f"{stem}.xml", stem, repairs, year)
        scenes += [] if scene is None else [scene]
    if not scenes:
        raise CsmlError(
            f"data: {annotations} has none of the {len(stems)} XML files that {folder.relative(list_file)} names, "
            f"such as {stems[0]}.xml"
        )
    return RawAnnotations(scenes, {})


def _read_files(folder: Folder, files: list[Path], repairs: Repairs) -> RawAnnotations:
    names = [file.stem for file in files]
    unique = len(set(names)) == len(names)
    scenes = []
    for file in watched(files, "reading annotations", total=len(files)):
        if _is_annotation(file):
            id = file.stem if unique else folder.relative(file.with_suffix(""))
            scene = _read_annotation(folder, file, id, repairs)
            scenes += [] if scene is None else [scene]
    if not scenes:
        problem = f" ({repairs.rows[0][0]}: {repairs.rows[0][1]})" if repairs.rows else ""
        raise CsmlError(f"data: no XML file of {some([folder.relative(file) for file in files])} can be used{problem}")
    return RawAnnotations(scenes, {})


def _read_annotation(
    folder: Folder, file: Path, id: str, repairs: Repairs, year: Path | None = None
) -> RawScene | None:
    try:
        require_file(file)  # a list may name a pipe, which would block
        tree = ElementTree.parse(file).getroot()
    except OSError:
        repairs.add("annotation missing, image skipped", file.name)
        return None
    except (ElementTree.ParseError, ValueError) as error:
        repairs.add("annotation cannot be read, image skipped", file.name, str(error))
        return None
    objects: list[RawObject] = []
    for element in tree.iter("object"):
        name, corners = (element.findtext("name") or "").strip(), element.find("bndbox")
        try:
            if corners is None or not name:
                raise ValueError("it has no name or no bndbox")
            x0, y0, x1, y1 = (float(corners.findtext(key) or "nan") for key in ("xmin", "ymin", "xmax", "ymax"))
        except ValueError as error:
            repairs.add("object cannot be read, skipped", file.name, str(error))
            continue
        difficult = (element.findtext("difficult") or "0").strip() == "1"
        # VOC counts pixels from 1 and includes the last one, so the smaller coordinate is reduced by one pixel.
        box = (x0 - (x0 <= x1), y0 - (y0 <= y1), x1 - (x1 < x0), y1 - (y1 < y0))
        objects.append(RawObject(name, box, difficult=difficult))
    if year is not None and (masks := year / "SegmentationObject" / f"{file.stem}.png").exists():
        try:
            objects = with_masks(objects, read_instances(masks), file.name, repairs)
        except DecodeError as error:
            repairs.add("mask cannot be read, left out", masks.name, str(error.__cause__ or error))
    return RawScene(_image_of(folder, file, tree, year), id, _stated_size(tree), objects)


def _image_of(folder: Folder, file: Path, tree: ElementTree.Element, year: Path | None) -> Path:
    """The image in VOC's own folder, else the nearest one with the stem of the XML file or the name stated in it."""
    stated = Path((tree.findtext("filename") or "").strip().replace("\\", "/")).name  # never a path to another folder
    places = [file.parent] if year is None else [year / "JPEGImages"]
    same_stem = [stated] if Path(stated).stem == file.stem else []
    candidates = [f"{file.stem}.jpg", *same_stem, *(file.stem + end for end in sorted(EXTENSIONS))]
    for place in places:
        found = next((place / name for name in candidates if (place / name).exists()), None)
        if found is not None:
            return found
    found = folder.image(file, stem=file.stem, name=stated)
    if found is not None and folder.role(found) in (None, folder.role(file)) and found.is_relative_to(year or found):
        return found
    return places[0] / (stated or candidates[0])


def _stated_size(tree: ElementTree.Element) -> tuple[int, int] | None:
    try:
        return int(float(tree.findtext("size/height") or "")), int(float(tree.findtext("size/width") or ""))
    except ValueError:
        return None
