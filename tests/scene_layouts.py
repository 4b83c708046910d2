"""Drawn scenes, written in every layout in which people have annotations."""

import base64
import io
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from scene_drawing import SIDE, Drawn, drawn
from scene_files import voc_object


def save(path: Path, pixels: np.ndarray, mode: str | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(pixels)
    (picture.convert(mode) if mode else picture).save(path)


def write(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)


def xml(scene: Drawn, suffix: str = ".jpg", size: int = SIDE) -> str:
    """As labelImg writes it; the last pixel is part of the box, and the first one has the number 1."""
    objects = "".join(
        voc_object(name, x0 + 1, y0 + 1, x1, y1)
        for name, (x0, y0, x1, y1) in zip(scene.names, scene.boxes.tolist(), strict=True)
    )
    stated = f"<size><width>{size}</width><height>{size}</height><depth>3</depth></size>"
    path = (
        f"<folder>images</folder><filename>{scene.name}{suffix}</filename><path>C:\\photos\\{scene.name}{suffix}</path>"
    )
    return f"<annotation verified='yes'>{path}{stated}{objects}</annotation>"


def coco(scenes: list[Drawn], prefix: str = "", masks: bool = True, first: int = 1) -> dict[str, Any]:
    names = sorted({name for scene in drawn() for name in scene.names})
    ids = {name: number for number, name in enumerate(names, start=first)}
    annotations: list[dict[str, Any]] = []
    for image, scene in enumerate(scenes):
        for name, (x0, y0, x1, y1), mask in zip(scene.names, scene.boxes.tolist(), scene.masks, strict=True):
            row = {"id": len(annotations), "image_id": image, "category_id": ids[name], "iscrowd": 0}
            row |= {"bbox": [x0, y0, x1 - x0, y1 - y0], "area": float(mask.sum())}
            flat = np.concatenate([[0], mask.flatten(order="F"), [0]]).astype(int)
            changes = np.flatnonzero(np.diff(flat))
            runs = np.diff(np.concatenate([[0], changes, [mask.size]])).tolist()
            annotations.append({**row, "segmentation": {"size": [SIDE, SIDE], "counts": runs}} if masks else row)
    images = [
        {"id": number, "file_name": f"{prefix}{scene.name}.jpg", "height": SIDE, "width": SIDE}
        for number, scene in enumerate(scenes)
    ]
    categories = [{"id": id, "name": name, "supercategory": ""} for name, id in ids.items()]
    return {"licenses": [], "info": {}, "categories": categories, "images": images, "annotations": annotations}


def instances(scene: Drawn) -> np.ndarray:
    values = np.zeros((SIDE, SIDE), np.uint8)
    for number, mask in enumerate(scene.masks, start=1):
        values[mask] = number
    return values


def raccoon(root: Path) -> None:
    """The raccoon set: images/, annotations/, and tables that nobody needs."""
    for scene in drawn():
        save(root / "images" / f"{scene.name}.jpg", scene.pixels)
        write(root / "annotations" / f"{scene.name}.xml", xml(scene))
    write(root / "data/raccoon_labels.csv", "filename,width,height,class,xmin,ymin,xmax,ymax\n")
    for name in ("data/train_labels.csv", "data/test_labels.csv", "data/train.record", "environment.yml"):
        write(root / name, "")
    write(root / "training/ssd_mobilenet_v1_pets.config", "model {}")
    write(root / "draw boxes.ipynb", "{}")
    write(root / "README.md", "# Raccoons")


def cards(root: Path) -> None:
    """The playing cards: images/train and images/test with XML inside, suffixes in capitals, and tables."""
    for number, scene in enumerate(drawn()):
        place = root / "images" / ("test" if number >= 7 else "train")
        save(place / f"{scene.name}.JPG", scene.pixels)
        write(place / f"{scene.name}.xml", xml(scene, ".JPG"))
    for name in ("train", "test"):
        write(root / f"images/{name}_labels.csv", "filename,width,height,class,xmin,ymin,xmax,ymax\n")
    write(root / "training/labelmap.pbtxt", "item { id: 1 name: 'nine' }")
    for name in ("test1.JPG", "doc/collage.jpg", "doc/loss_graph.JPG"):  # pictures that nobody annotated
        save(root / name, drawn(1)[0].pixels)


def fruit(root: Path) -> None:
    """The fruit images: train_zip/train and test_zip/test; some XML files state a size of 0."""
    for number, scene in enumerate(drawn()):
        place = root / ("test_zip/test" if number >= 7 else "train_zip/train")
        save(place / f"{scene.name}.jpg", scene.pixels)
        write(place / f"{scene.name}.xml", xml(scene, size=0 if number == 1 else SIDE))


def nuclei(root: Path) -> None:
    """The nuclei: a folder per image with images/ID.png and a mask file per object; the test images have no masks."""
    for number, scene in enumerate(drawn()):
        place = root / "stage1_train" / scene.name
        save(place / "images" / f"{scene.name}.png", scene.pixels, "RGBA")
        for object, mask in enumerate(scene.masks):
            save(place / "masks" / f"{number:02d}{object:030x}.png", mask.astype(np.uint8) * 255)
    save(root / "stage1_test/zzz/images/zzz.png", drawn(1)[0].pixels, "RGBA")
    write(root / "stage1_train_labels.csv", "ImageId,EncodedPixels\n")


def penn_fudan(root: Path) -> None:
    """Penn-Fudan: PNGImages, PedMasks with a value per pedestrian, and text files."""
    place = root / "PennFudanPed"
    for scene in drawn():
        save(place / "PNGImages" / f"{scene.name}.png", scene.pixels)
        save(place / "PedMasks" / f"{scene.name}_mask.png", instances(scene))
        lines = ["# Compatible with PASCAL Annotation Version 1.00"]
        lines += [f'Image filename : "PennFudanPed/PNGImages/{scene.name}.png"']
        lines += [f"Image size (X x Y x C) : {SIDE} x {SIDE} x 3"]
        listed = " ".join(f'"{name}"' for name in scene.names)
        lines += [f"Objects with ground truth : {len(scene.names)} {{ {listed} }}"]
        for number, (name, box) in enumerate(zip(scene.names, scene.boxes.astype(int).tolist(), strict=True), start=1):
            lines += [f'# Details for pedestrian {number} ("{name}")']
            lines += [f'Original label for object {number} "{name}" : "PennFudanPed"']
            corners = f"({box[0] + 1}, {box[1] + 1}) - ({box[2]}, {box[3]})"
            lines += [f'Bounding box for object {number} "{name}" (Xmin, Ymin) - (Xmax, Ymax) : {corners}']
            lines += [f'Pixel mask for object {number} "{name}" : "PennFudanPed/PedMasks/{scene.name}_mask.png"', ""]
        write(place / "Annotation" / f"{scene.name}.txt", "\n".join(lines))
    write(place / "readme.txt", "1. Introduction")
    write(place / "added-object-list.txt", "FudanPed00001.txt")


def beside(root: Path) -> None:
    """XML files beside the images."""
    for scene in drawn():
        save(root / f"{scene.name}.png", scene.pixels)
        write(root / f"{scene.name}.xml", xml(scene, ".png"))


def voc_with_masks(root: Path) -> None:
    """VOC's own layout with SegmentationObject."""
    for scene in drawn():
        save(root / "JPEGImages" / f"{scene.name}.jpg", scene.pixels)
        write(root / "Annotations" / f"{scene.name}.xml", xml(scene))
        save(root / "SegmentationObject" / f"{scene.name}.png", instances(scene))
    names = [scene.name for scene in drawn()]
    write(root / "ImageSets/Main/train.txt", "\n".join(names[:7]))
    write(root / "ImageSets/Main/val.txt", "\n".join(names[7:]))


def pascal_masks(root: Path) -> None:
    """CVAT's "Segmentation mask": SegmentationObject and SegmentationClass in colours, and a labelmap.txt."""
    names = sorted({name for scene in drawn() for name in scene.names})
    colours = {name: np.array([40 * number + 10, 200, 3 * number]) for number, name in enumerate(names)}
    lines = [f"{name}:{','.join(map(str, colour))}::" for name, colour in colours.items()]
    write(root / "labelmap.txt", "# label:color_rgb:parts:actions\nbackground:0,0,0::\n" + "\n".join(lines))
    for scene in drawn():
        save(root / "JPEGImages" / f"{scene.name}.jpg", scene.pixels)
        for folder in ("SegmentationObject", "SegmentationClass"):
            coloured = np.zeros((SIDE, SIDE, 3), np.uint8)
            for number, (name, mask) in enumerate(zip(scene.names, scene.masks, strict=True), start=1):
                coloured[mask] = colours[name] if folder == "SegmentationClass" else (128, 30 * number, 0)
            save(root / folder / f"{scene.name}.png", coloured)
    write(root / "ImageSets/Segmentation/default.txt", "\n".join(scene.name for scene in drawn()))


def cvat(root: Path) -> None:
    """One COCO file of CVAT."""
    for scene in drawn():
        save(root / "images/default" / f"{scene.name}.jpg", scene.pixels)
    write(root / "annotations/instances_default.json", json.dumps(coco(drawn())))


def roboflow(root: Path) -> None:
    """A COCO file per split, beside the images; the first category is the group of all."""
    for split, scenes in (("train", drawn()[:6]), ("valid", drawn()[6:9]), ("test", drawn()[9:])):
        for scene in scenes:
            save(root / split / f"{scene.name}.jpg", scene.pixels)
        content = coco(scenes, masks=False)
        content["categories"] = [{"id": 0, "name": "shapes", "supercategory": "none"}] + [
            {**row, "supercategory": "shapes"} for row in content["categories"]
        ]
        write(root / split / "_annotations.coco.json", json.dumps(content))


def label_studio(root: Path) -> None:
    """result.json with backslashes and, in newer versions, paths of the server; ids from 0."""
    for scene in drawn():
        save(root / "images" / f"{scene.name}.jpg", scene.pixels)
    content = coco(drawn(), first=0)
    for number, row in enumerate(content["images"]):
        upload = "../../label-studio/data/media/upload/1/"
        row["file_name"] = (upload if number % 2 else "images\\") + row["file_name"]
    write(root / "result.json", json.dumps(content))


def yolo(root: Path) -> None:
    """Roboflow's YOLO: data.yaml whose paths lead out of the folder, boxes in shares."""
    names = sorted({name for scene in drawn() for name in scene.names})
    for number, scene in enumerate(drawn()):
        split = "valid" if number >= 7 else "train"
        save(root / split / "images" / f"{scene.name}.jpg", scene.pixels)
        rows = [
            f"{names.index(name)} {(x0 + x1) / 2 / SIDE} {(y0 + y1) / 2 / SIDE} {(x1 - x0) / SIDE} {(y1 - y0) / SIDE}"
            for name, (x0, y0, x1, y1) in zip(scene.names, scene.boxes.tolist(), strict=True)
        ]
        write(root / split / "labels" / f"{scene.name}.txt", "\n".join(rows))
    described = f"train: ../train/images\nval: ../valid/images\nnc: {len(names)}\nnames: {json.dumps(names)}\n"
    write(root / "data.yaml", described)


def yolo_plain(root: Path) -> None:
    """images/, labels/ and classes.txt, without a data.yaml."""
    yolo(root)
    names = json.loads((root / "data.yaml").read_text().split("names: ")[1])
    (root / "data.yaml").unlink()
    for kind in ("images", "labels"):
        for file in sorted(root.glob(f"*/{kind}/*")):
            write(root / kind / file.name, file.read_bytes())
            file.unlink()
    write(root / "classes.txt", "\n".join(names))


def fiftyone_coco(root: Path) -> None:
    """FiftyOne's COCO export: data/ and labels.json."""
    for scene in drawn():
        save(root / "data" / f"{scene.name}.jpg", scene.pixels)
    write(root / "labels.json", json.dumps(coco(drawn(), first=0)))


def fiftyone(root: Path) -> None:
    """FiftyOne's own export: samples.json with boxes in shares, masks inside of boxes, and tags."""
    samples = []
    for number, scene in enumerate(drawn()):
        save(root / "data" / f"{scene.name}.jpg", scene.pixels)
        found = []
        for name, box, mask in zip(scene.names, scene.boxes, scene.masks, strict=True):
            x0, y0, x1, y1 = box.astype(int).tolist()
            stored = io.BytesIO()
            np.save(stored, mask[y0:y1, x0:x1])
            code = base64.b64encode(zlib.compress(stored.getvalue())).decode()
            shares = [x0 / SIDE, y0 / SIDE, (x1 - x0) / SIDE, (y1 - y0) / SIDE]
            found.append(
                {"_cls": "Detection", "label": name, "bounding_box": shares, "mask": {"$binary": {"base64": code}}}
            )
        tag = "validation" if number >= 7 else "train"
        truth = {"_cls": "Detections", "detections": found}
        samples.append({"filepath": f"data/{scene.name}.jpg", "tags": [tag], "ground_truth": truth})
    write(root / "samples.json", json.dumps({"samples": samples}))
    write(root / "metadata.json", json.dumps({"name": "drawn"}))


def fiftyone_detections(root: Path) -> None:
    """FiftyOne's detection export: labels.json with classes and labels by image."""
    names = sorted({name for scene in drawn() for name in scene.names})
    labels = {}
    for scene in drawn():
        save(root / "data" / f"{scene.name}.jpg", scene.pixels)
        labels[scene.name] = [
            {"label": names.index(name), "bounding_box": [x0 / SIDE, y0 / SIDE, (x1 - x0) / SIDE, (y1 - y0) / SIDE]}
            for name, (x0, y0, x1, y1) in zip(scene.names, scene.boxes.tolist(), strict=True)
        ]
    write(root / "labels.json", json.dumps({"classes": names, "labels": labels}))


class Layout(NamedTuple):
    """How to write a layout, and what it must be understood as."""

    write: Callable[[Path], None]
    format: str
    tested: int | None
    """test images, if the layout says which; else they are drawn"""
    masks: bool
    named: bool = True
    """whether it has class names"""


LAYOUTS = {
    "raccoon": Layout(raccoon, "voc", None, False),
    "cards": Layout(cards, "voc", 3, False),
    "fruit": Layout(fruit, "voc", 3, False),
    "nuclei": Layout(nuclei, "masks", None, True, named=False),
    "penn-fudan": Layout(penn_fudan, "masks", None, True),
    "beside": Layout(beside, "voc", None, False),
    "voc-with-masks": Layout(voc_with_masks, "voc", 3, True),
    "pascal-masks": Layout(pascal_masks, "masks", None, True),
    "cvat": Layout(cvat, "coco", None, True),
    "roboflow": Layout(roboflow, "coco", 3, False),
    "label-studio": Layout(label_studio, "coco", None, True),
    "yolo": Layout(yolo, "yolo", 3, False),
    "yolo-plain": Layout(yolo_plain, "yolo", None, False),
    "fiftyone-coco": Layout(fiftyone_coco, "coco", None, True),
    "fiftyone": Layout(fiftyone, "fiftyone", 3, True),
    "fiftyone-detections": Layout(fiftyone_detections, "fiftyone", None, False),
}
