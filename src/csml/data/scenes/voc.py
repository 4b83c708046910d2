"""The Pascal VOC layout: JPEGImages/, Annotations/ (one XML file per image) and ImageSets/Main/ (lists of names)."""

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from csml.data.decode import EXTENSIONS
from csml.data.scenes.annotations import Scenes
from csml.data.scenes.repair import FoundObject, FoundScene, Repairs, assemble
from csml.errors import CsmlError, some
from csml.progress import watched

_SETS = "ImageSets/Main"
_SPLITS = (("trainval", "test"), ("train", "val"), ("train", "test"))
"""Names of the training and test lists; the first pair that exists is used."""


def is_voc(root: Path) -> bool:
    return any((year / _SETS).is_dir() and (year / "Annotations").is_dir() for year in _years(root))


def read_voc(
    root: Path, train: Sequence[str], test: Sequence[str], repairs: tuple[Repairs, Repairs]
) -> tuple[Scenes, Scenes]:
    """Read the training and the test scenes.

    Args:
        root: a folder with this layout, or one with several years of it, such as VOCdevkit.
        train, test: names of lists, such as `trainval` or, for one year, `VOC2007/trainval`; several are concatenated.
            If empty, VOC's own choice: trainval of all years and test of 2007; else train and val.
        repairs: collects the problems of each split.
    """
    if not train or not test:
        default = _default_lists(root)
        train, test = train or default[0], test or default[1]
    found = [_read_lists(root, names, each) for names, each in zip((train, test), repairs, strict=True)]
    classes = tuple(sorted({name for _, objects in found[0] for name, _ in objects}))
    if not classes:
        raise CsmlError(f"data: the images of {', '.join(train)} in {root} have no objects")
    numbers = {name: label for label, name in enumerate(classes)}
    scenes = []
    for split, each in zip(found, repairs, strict=True):
        named: list[FoundScene] = []
        for scene, objects in split:
            for name in {name for name, _ in objects if name not in numbers}:
                each.add(f"class {name} is not in the training set, its objects are left out", scene.path.name)
            known = [FoundObject(**values, label=numbers[name]) for name, values in objects if name in numbers]  # type: ignore[arg-type]
            named.append(FoundScene(scene.path, scene.id, scene.size, known))
        scenes.append(assemble(named, root, classes, tuple(range(1, len(classes) + 1)), each))
    return scenes[0], scenes[1]


_Named = list[tuple[str, dict[str, object]]]
"""Class name, box and flag of each object, before classes are numbered."""


def _years(root: Path) -> list[Path]:
    """The folder itself, or the subfolders that have the layout."""
    if (root / _SETS).is_dir():
        return [root]
    return sorted(path.parent.parent for path in root.glob(f"*/{_SETS}") if path.is_dir())


def _default_lists(root: Path) -> tuple[list[str], list[str]]:
    """Names of the training and test lists to use if none is given."""
    years = _years(root)
    if not years:
        raise CsmlError(f"data: {root} is not in VOC's layout: it has no {_SETS} folder")
    prefix = {year: "" if year == root else f"{year.name}/" for year in years}
    for train, test in _SPLITS:
        train_lists = [f"{prefix[year]}{train}" for year in years if (year / _SETS / f"{train}.txt").exists()]
        test_lists = [f"{prefix[year]}{test}" for year in years if (year / _SETS / f"{test}.txt").exists()]
        if train_lists and test_lists:
            return train_lists, test_lists[:1]  # VOC 2012's test annotations are not public
    raise CsmlError(f"train, test: name the lists of {root} to train and to test on: {_lists(root)}")


def _lists(root: Path) -> str:
    files = sorted(path for year in _years(root) for path in (year / _SETS).glob("*.txt"))
    return some([f"{file.parents[2].relative_to(root) / file.stem}" for file in files], 10)


def _read_lists(root: Path, names: Sequence[str], repairs: Repairs) -> list[tuple[FoundScene, _Named]]:
    entries: list[tuple[Path, str]] = []
    for name in names:
        year = (root / name).parent
        file = year / _SETS / f"{Path(name).name}.txt"
        try:
            lines = file.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise CsmlError(f"train, test: cannot read the list {file}; there are {_lists(root)}") from error
        entries += [(year, words[0]) for line in lines if (words := line.split())]
    if not entries:
        raise CsmlError(f"train, test: the list {', '.join(names)} of {root} is empty")
    several = len({year for year, _ in entries}) > 1
    found = []
    for year, stem in watched(entries, "reading annotations", total=len(entries)):
        scene = _read_annotation(year, stem, f"{year.name}/{stem}" if several else stem, repairs)
        if scene is not None:
            found.append(scene)
    return found


def _read_annotation(year: Path, stem: str, id: str, repairs: Repairs) -> tuple[FoundScene, _Named] | None:
    file = year / "Annotations" / f"{stem}.xml"
    try:
        tree = ElementTree.parse(file).getroot()
    except OSError:
        repairs.add("annotation missing, image skipped", file.name)
        return None
    except (ElementTree.ParseError, ValueError) as error:
        repairs.add("annotation cannot be read, image skipped", file.name, str(error))
        return None
    objects: _Named = []
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
        objects.append((name, {"box": box, "difficult": difficult}))
    return FoundScene(_image_of(year, stem, tree), id, _stated_size(tree), []), objects


def _image_of(year: Path, stem: str, tree: ElementTree.Element) -> Path:
    folder = year / "JPEGImages"
    stated = Path((tree.findtext("filename") or "").strip()).name  # only the name: never a file outside of the folder
    candidates = [
        f"{stem}.jpg",
        *([stated] if Path(stated).stem == stem else []),
        *(stem + end for end in sorted(EXTENSIONS)),
    ]
    return next((folder / name for name in candidates if (folder / name).exists()), folder / f"{stem}.jpg")


def _stated_size(tree: ElementTree.Element) -> tuple[int, int] | None:
    try:
        return int(float(tree.findtext("size/height") or "")), int(float(tree.findtext("size/width") or ""))
    except ValueError:
        return None
