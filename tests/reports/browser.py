"""A real browser without a network, for pages that lie on disk or are served to this machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Dialog, Page, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

_PAUSE_MS = 50
_TRIES = 600


@contextmanager
def chromium() -> Iterator[Browser]:
    """Skips the test where no browser is installed."""
    if CHROMIUM is None:
        pytest.skip("no chromium is installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Opened:
    """A page that was opened, with all that went wrong in it and all that it asked a network for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def dismiss(self, dialog: Dialog) -> None:
        """None is ours."""
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def leave(self) -> None:
        """Close the page, of which nobody complained, and which asked for nothing."""
        assert (self.complaints, self.requests) == ([], [])
        self.page.close()


def opened(browser: Browser, file: Path | str, fragment: str = "", **settings: Any) -> Opened:
    """``file``: or the address of a server of ours, with its slash.

    ``settings`` are playwright's of a page: ``viewport``, ``color_scheme`` and others.
    """
    own = file.as_uri() if isinstance(file, Path) else file
    page = browser.new_page(**{"viewport": {"width": 1200, "height": 900}, **settings})
    found = Opened(page)
    page.on("console", lambda message: found.complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: found.complaints.append(str(error)))
    page.on("dialog", found.dismiss)
    page.on(
        "request",
        lambda request: (
            found.requests.append(request.url)
            if not request.url.startswith((own, "data:", "blob:"))
            else None
        ),
    )
    page.goto(f"{own}{fragment}")
    return found


def until(page: Page, condition: str, arg: Any = None) -> None:
    """Wait until an expression, or a function of ``arg``, holds in the page. Playwright's own waiting asks
    again from within the page, where our policy forbids `eval`: it fails unless the first answer is yes."""
    for _ in range(_TRIES):
        if page.evaluate(condition, arg):
            return
        page.wait_for_timeout(_PAUSE_MS)
    raise AssertionError(f"never came true in the page: {condition}")


def nothing_serious(page: Page) -> None:
    """Axe finds nothing serious or critical."""
    found = Axe().run(page).response["violations"]
    assert [
        (rule["id"], [node["html"][:200] for node in rule["nodes"][:3]])
        for rule in found
        if rule["impact"] in ("serious", "critical")
    ] == []


def draw_all(page: Page) -> None:
    """Scroll through the page, so that every picture comes into view, and wait until all are drawn."""
    for place in page.locator("figure[data-picture]").all():
        place.scroll_into_view_if_needed()
        place.locator("svg, canvas").first.wait_for()
    page.evaluate("window.scrollTo(0, 0)")
