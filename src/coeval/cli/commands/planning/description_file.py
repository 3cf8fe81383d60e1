"""The description of an experiment as a file: a page, or what a browser prints of it."""

from __future__ import annotations

from pathlib import Path

from coeval.core.errors import UsageError
from coeval.reports.content.report_content import Report
from coeval.reports.paper.browser_print import browser, print_page
from coeval.reports.paper.paper_page import paper_page
from coeval.reports.site.page import write_page
from coeval.store.jsonl import write_bytes_atomic

__all__ = ["refuse_place", "write_description"]


def refuse_place(place: Path, config: Path) -> None:
    """
    Raises
    ------
    UsageError
        a page cannot, or should not, take that place; or it is to be printed and nothing prints.
    """
    if place.suffix.lower() not in (".html", ".htm", ".pdf"):
        raise UsageError(f"{place} is to be a page; end its name in .html, or in .pdf to have it printed")
    if place.is_dir() or (place.exists() and place.samefile(config)):
        raise UsageError(f"{place} cannot be replaced by a page; name a new file")
    if not place.parent.is_dir():
        raise UsageError(f"{place}: there is no folder {place.parent}; make it, or name another")
    if place.suffix.lower() == ".pdf":
        browser()


def write_description(report: Report, place: Path) -> None:
    """Write it, in place of an older one.

    Raises
    ------
    StoreError
        it cannot be written, or not be printed.
    """
    if place.suffix.lower() == ".pdf":
        print_page(paper_page(report), place, browser())
    else:
        write_bytes_atomic(place, write_page(report))
