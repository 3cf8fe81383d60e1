"""``make screenshots``: the pictures of ``docs/gallery.md``, taken of tools/docs/materials.py in chromium.

``--materials FOLDER`` spares the building.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, sync_playwright

from tools.docs.materials import COEVAL, SKILLS, build
from tools.docs.palette_png import small_png

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

MATERIALS = ("quickstart", "panel", "one-student", "labels", "pairwise", "compare-2", "compare-8", "sweeps")
PHONES = ("panel", "compare-8", "sweeps")
"""Those that are also shown at other widths."""
HEIGHTS = {1440: 900, 1024: 768, 390: 844}
A4 = (794, 1123)
"""Pixels of a page at 96 to an inch."""


class Shot(NamedTuple):
    """A picture: what of which page, how large, in which colours, and on the screen or on paper."""

    name: str
    page: str
    width: int = 1440
    height: int = 900
    dark: bool = False
    paper: bool = False
    after_ms: int = 2_500  # pictures are drawn after the first paint


SHOTS = (
    Shot("report-leads", "panel.html"),
    *(
        Shot(f"{name}-{width}", f"{name}.html", width, HEIGHTS[width])
        for name in MATERIALS
        for width in HEIGHTS
        if (width == 1440 and name != "panel") or (width != 1440 and name in PHONES)
    ),
    Shot("benchmarks-1440", "benchmarks.html"),
    Shot("panel-dark", "panel.html", dark=True),
    Shot("sweeps-dark", "sweeps.html", dark=True),
    Shot("panel-print", "panel.html", *A4, paper=True),
    Shot("compare-8-print", "compare-8.html", *A4, paper=True),
    Shot("panel-where", "panel.html#where"),
    Shot("panel-judges", "panel.html#judges"),
    Shot("panel-items", "panel.html#items"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description="Take the pictures of docs/gallery.md.")
    parser.add_argument("--materials", type=Path, metavar="FOLDER", help="what tools/docs/materials.py wrote")
    chosen = parser.parse_args()
    if CHROMIUM is None:
        print("no chromium is installed: make browser", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        work = (chosen.materials or Path(folder) / "materials").resolve()
        if chosen.materials is None:
            build(work)
        for shot in SHOTS:
            _take(browser, shot, f"{(work / 'pages').as_uri()}/{shot.page}")
        with _viewing(work) as server:
            _take(browser, Shot("view", "", after_ms=20_000), server)  # every folder is read
        browser.close()
    return 0


@contextmanager
def _viewing(work: Path) -> Iterator[str]:
    """`coeval view` in a process of its own; its address."""
    command = [*COEVAL, "view", "runs", "outputs", *(f"sweeps/{name}" for name in SKILLS), "--port", "0"]
    with subprocess.Popen(command, cwd=work, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield next(word for word in process.stdout.readline().split() if word.startswith("http"))
        finally:
            process.terminate()


def _take(browser: Browser, shot: Shot, address: str) -> None:
    page = browser.new_page(
        viewport={"width": shot.width, "height": shot.height},
        color_scheme="dark" if shot.dark else "light",
    )
    page.goto(address)
    page.wait_for_timeout(shot.after_ms)
    if shot.paper:
        page.emulate_media(media="print")
    path = IMAGES / f"{shot.name}.png"
    taken = page.screenshot()
    page.goto("about:blank")
    path.write_bytes(small_png(page, taken))
    page.close()
    print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    sys.exit(main())
