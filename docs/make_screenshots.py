"""``make screenshots``: the pictures of ``docs/gallery.md``, taken of the demo in Debian's chromium.

The models are simulated, so that the same figures stand in them every time.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
COEVAL = [sys.executable, "-m", "coeval"]


class Shot(NamedTuple):
    """A picture: what of which page, how large, and in which colours."""

    name: str
    page: str
    width: int = 1200
    height: int = 800
    dark: bool = False


SHOTS = (
    Shot("report-leads", "{report}"),
    Shot("report-where", "{report}#where"),
    Shot("report-judges-dark", "{report}#judges", dark=True),
    Shot("report-phone", "{report}", 390, 800),
    Shot("items", "{report}#items?order=disagreement"),
    Shot("view", "{server}"),
)


def main() -> int:
    if CHROMIUM is None:
        print("no chromium is installed: make browser", file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        example = str(ROOT / "examples" / "quickstart.yaml")
        subprocess.run([*COEVAL, "run", "--config", example, "--report"], cwd=work, check=True)
        with _viewing(work) as server, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            report = (work / "runs" / "quickstart" / "report.html").as_uri()
            for shot in SHOTS:
                _take(browser, shot, shot.page.format(report=report, server=server))
            browser.close()
    return 0


@contextmanager
def _viewing(work: Path) -> Iterator[str]:
    """`coeval view` in a process of its own; its address."""
    command = [*COEVAL, "view", "--port", "0"]
    process = subprocess.Popen(command, cwd=work, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield next(word for word in process.stdout.readline().split() if word.startswith("http"))
    finally:
        process.terminate()
        process.wait(10)


def _take(browser: Browser, shot: Shot, address: str) -> None:
    page = browser.new_page(
        viewport={"width": shot.width, "height": shot.height},
        color_scheme="dark" if shot.dark else "light",
    )
    page.goto(address)
    page.wait_for_timeout(2_000)  # charts are drawn when they come into view
    page.screenshot(path=IMAGES / f"{shot.name}.png")
    page.close()
    print(f"docs/images/{shot.name}.png")


if __name__ == "__main__":
    sys.exit(main())
