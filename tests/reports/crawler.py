"""Rules for all pages: what breaks one is named with its page and width. ``crawler.js`` looks at the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page
from reports.browser import draw_all, opened

WIDTHS = {1440: 900, 1024: 768, 390: 844}
_RULES = Path(__file__).with_suffix(".js").read_text()


class Offender(NamedTuple):
    rule: str
    width: int
    what: str


def offenders(browser: Browser, file: Path, width: int) -> Iterator[Offender]:
    """All that breaks a rule on a page, its tables opened and its pictures drawn."""
    seen = opened(browser, file, viewport={"width": width, "height": WIDTHS[width]})
    draw_all(seen.page)
    seen.page.evaluate("for (const one of document.querySelectorAll('main details')) one.open = true")
    seen.page.evaluate("for (const one of document.querySelectorAll('main .more')) one.click()")
    for rule, found in seen.page.evaluate(f"({_RULES})()").items():
        yield from (Offender(rule, width, each) for each in dict.fromkeys(found))
    yield from _barriers(seen.page, width)
    yield from (Offender("complaints", width, each) for each in seen.complaints + seen.requests)
    seen.page.close()


def _barriers(page: Page, width: int) -> Iterator[Offender]:
    """What axe has to say, whatever the impact."""
    for rule in Axe().run(page).response["violations"]:
        for node in rule["nodes"]:
            yield Offender("axe", width, f"{rule['id']}: {node['html'][:160]}")
