"""The workbench with synthetic features: start, server memory, frame and lasso times in a real browser.

    python -m benchmarks.workbench 100000

The images are one grey square each, the features 20 clouds of 512 dimensions; so the times are those of the page and
its server, not of a network. Needs chromium.
"""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from csml.config import HardwareConfig, ImagesConfig
from csml.data.images import ArrayImages
from csml.data.loading import fabric_for
from csml.data.open import DataSplits
from csml.evaluation.search_index import SearchIndex
from csml.explorer.map_layout import MapLayout
from csml.explorer.network_view import NetworkView
from csml.explorer.server import build_app
from csml.explorer.store import Store
from csml.explorer.training import Training
from csml.explorer.workbench import Workbench
from csml.models.backbones import build_backbone
from csml.reporting.mapped_images import OpenedRun
from csml.reporting.runs import FinishedRun

DIMENSIONS, CLOUDS = 512, 20
LASSO_CORNERS = 200


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        features = synthetic_features(count, root / "features.npy")
        for what in ("cold", "warm"):
            began = time.monotonic()
            workbench, training = open_synthetic(features, root)
            workbench.suggestions()
            print(f"{count:,} images, {what}: the page is there after {time.monotonic() - began:.1f} s", flush=True)
            if what == "cold":
                workbench.view.layout.finish()
                print(f"the map is finished after {time.monotonic() - began:.1f} s, {own():.0f} MB", flush=True)
        began = time.monotonic()
        workbench.next_to_label(12, "both")
        print(f"the queue takes {time.monotonic() - began:.1f} s")
        workbench.label({id: f"cloud {id % CLOUDS}" for id in range(100)}, "ask")
        began = time.monotonic()
        workbench.suggestions()
        print(f"suggestions from 100 labels take {time.monotonic() - began:.1f} s")
        mapped = features.numel() * 2 / 1e6
        print(f"server memory {own():.0f} MB, and features mapped from the disk, {mapped:.0f} MB", flush=True)
        in_browser(workbench, training)


def synthetic_features(count: int, file: Path) -> torch.Tensor:
    """float16 `(N, 512)` of length one, memory-mapped as an index is."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(CLOUDS, DIMENSIONS, generator=generator)
    stored = np.lib.format.open_memmap(file, "w+", np.float16, (count, DIMENSIONS))
    for start in range(0, count, 10_000):
        ids = torch.arange(start, min(count, start + 10_000))
        rows = centres[ids % CLOUDS] + 1.5 * torch.randn(len(ids), DIMENSIONS, generator=generator)
        stored[start : start + len(ids)] = F.normalize(rows, dim=1).half().numpy()
    stored.flush()
    return torch.from_numpy(np.load(file, mmap_mode="c"))


def open_synthetic(features: torch.Tensor, root: Path) -> tuple[Workbench, Training]:
    pixels = np.broadcast_to(np.full((1, 8, 8, 3), 128, np.uint8), (len(features), 8, 8, 3))
    images = ArrayImages(pixels, np.full(len(features), -1), (), "synthetic")
    run = FinishedRun(root, "synthetic", "pretrain", {"data": "synthetic"}, [], {})
    fabric = fabric_for(images, 0, HardwareConfig())
    opened = OpenedRun(build_backbone("tiny").eval(), ImagesConfig(size=8), fabric, DataSplits(images, None, None))
    view = NetworkView(opened, SearchIndex(features), "synthetic", MapLayout(features, root / "map.npz", 0), None)
    store = Store(run.files.explore_state, run.files.explore_labels)
    workbench = Workbench(run, view, store, [])
    return workbench, Training(workbench, opened, 0)


def in_browser(workbench: Workbench, training: Training) -> None:
    """Milliseconds of a frame and of a lasso round half of the map, the median of several."""
    import socket
    import threading

    import uvicorn
    from playwright.sync_api import sync_playwright

    door = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(build_app(workbench, training, "secret"), log_level="error"))
    threading.Thread(target=server.run, kwargs={"sockets": [door]}, daemon=True).start()
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        words = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
        browser = playwright.chromium.launch(executable_path=chromium, args=words)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        began = time.monotonic()
        page.goto(f"http://127.0.0.1:{door.getsockname()[1]}/?token=secret")
        page.wait_for_selector("body[data-drawn=yes]", timeout=300_000)
        print(f"the browser has drawn the page after {time.monotonic() - began:.1f} s")
        times = page.evaluate(MEASURE, LASSO_CORNERS)
        print(f"lasso {times['lasso']:.0f} ms ({times['found']:,} selected), frame {times['frame']:.0f} ms of script")
        print(f"frames per second while moving, software rendering: {times['rate']:.1f}")
        browser.close()
    server.should_exit = True


MEASURE = """async (corners) => {
  const { Spatial } = await import("/spatial.js"), { select, model } = await import("/model.js");
  const { camera, redraw, times } = csmlPage, spatial = new Spatial(model.x, model.y);
  const median = (all) => all.sort((a, b) => a - b)[all.length >> 1];
  const angle = (number) => (2 * Math.PI * number) / corners;
  const round = (_, number) => [0.5 + 0.4 * Math.cos(angle(number)), 0.5 + 0.4 * Math.sin(angle(number))];
  const polygon = Array.from({ length: corners }, round);
  const drawn = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const lassos = [], frames = [];
  let found;
  for (let trial = 0; trial < 7; trial++) {
    const began = performance.now();
    found = spatial.inside(polygon);
    select(found, "new");
    lassos.push(performance.now() - began);
    await drawn();
  }
  const began = performance.now();
  for (let trial = 0; trial < 20; trial++) {
    camera.move(trial % 2 ? 5 : -5, 0);
    redraw();
    await drawn();
    frames.push(times.frame);
  }
  const rate = 40 / ((performance.now() - began) / 1000); // two frames each
  return { lasso: median(lassos), frame: median(frames), rate, found: found.length };
}"""


def own() -> float:
    """Megabytes of memory that are this process's alone; what is mapped from a file can be dropped at any time."""
    _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main(int(sys.argv[1]))
