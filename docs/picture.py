"""Draw the README's picture, the head of a sweep's report, and keep its data next to it: ``python docs/picture.py``.

Needs the chromium binary. tests/docs/test_picture.py simulates a part of the data again.
"""

import csv
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "images"
BANDWIDTH = "fabric.accelerator_bandwidth"
COLUMNS = ("fabric", BANDWIDTH, "strategy.tp", "iteration_time_s")
BASE = {
    "model": "gpt_1_3b",
    "num_accelerators": 256,
    "global_batch": 512,
    "software": "ideal",
    "strategy": {"precision": "bf16_mixed", "micro_batch": 1},
}
GRID = {
    "fabric": ["flat_256", "cluster_256", "fat_tree", "torus", "hx2mesh_8x8"],
    BANDWIDTH: ["100 Gb/s", "200 Gb/s", "400 Gb/s", "800 Gb/s", "1600 Gb/s", "3200 Gb/s"],
    "strategy.tp": [1, 2, 4, 8],
}
_WIDTH, _HEIGHT = 1200, 1095  # of the head and its first figure [pixels]


def rows(grid: dict[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    """Simulate a grid of points and yield COLUMNS of each."""
    from rostam_py.cli.sweep import sweep as command  # presets of fabrics are the command line's

    words = [f"{key}={value}" for key, value in _flat(BASE)]
    words += [f"{key}={','.join(map(str, values))}" for key, values in grid.items()]
    options = ["sweep.backend=process", "sweep.title=GPT 1.3B on 256 accelerators", "sweep.details=0", f"out={folder}"]
    command([*words, *options], as_json=False)
    with (folder / "points.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            yield {name: row[name] for name in COLUMNS}


def _flat(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def draw(page: Path, picture: Path) -> None:
    """Take a picture of a page's head."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit(f"{picture} is as it was: drawing it needs the chromium binary")
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=chromium, chromium_sandbox=False)
        view = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT})
        view.goto(page.resolve().as_uri())
        view.wait_for_selector("html[data-ready=true]")
        view.screenshot(path=picture)
        browser.close()


def main(folder: Path) -> None:
    """Simulate, write data and picture."""
    found = list(rows(GRID, folder))
    draw(folder / "report.html", FOLDER / "report.png")
    with (FOLDER / "report.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:  # a kept one would be resumed, whatever code computed its points
        main(Path(folder))
