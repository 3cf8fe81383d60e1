"""A report as a page without any script, for printing: every picture drawn, every table open."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from markupsafe import Markup

from coeval import __version__
from coeval.core.errors import StoreError, UsageError
from coeval.core.plain import plain, shortened
from coeval.reports.content import Picture, Report, ReportTable
from coeval.reports.drawn_pictures import picture_svg
from coeval.reports.site.page import page_template, script_hash
from coeval.store.jsonl import write_bytes_atomic

# --- Printing to PDF by a local browser

BROWSER = "COEVAL_BROWSER"
"""The environment variable that names the program."""
_NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
    "msedge",
)
_PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "C:/Program Files/Google/Chrome/Application/chrome.exe",
    "C:/Program Files (x86)/Microsoft/Edge/Application/msedge.exe",
)
# A browser's cold start and the largest report on a busy machine; a hung one must end.
_LONGEST_S = 180.0
# Browsers log pages of warnings; the first lines name the fault.
_TOLD = 400


def browser() -> str:
    """The program that prints.

    Raises UsageError: there is none.
    """
    named = os.environ.get(BROWSER)
    if named is not None:
        if (found := shutil.which(named)) is None:
            raise UsageError(f"{BROWSER} names {named}, which is no program here; correct it, or unset it")
        return found
    for name in (*_NAMES, *_PLACES):
        if (found := shutil.which(name)) is not None:
            return found
    raise UsageError(
        f"a PDF is printed by Chromium, Chrome or Edge, and none is found here: install one, or name it in "
        f"{BROWSER}; a page (html) prints from any browser"
    )


def _printed(page: bytes, program: str) -> bytes:
    """Print a page that asks for nothing beyond itself.

    Raises StoreError: the program prints nothing.
    """
    with TemporaryDirectory(prefix="coeval-", ignore_cleanup_errors=True) as folder:
        source, printed = Path(folder) / "report.html", Path(folder) / "report.pdf"
        source.write_bytes(page)
        said = _run(program, source, printed, Path(folder) / "profile")
        if not printed.is_file():
            raise StoreError(f"{program} printed nothing: {shortened(plain(said.strip()), _TOLD)}")
        return printed.read_bytes()


def _run(program: str, source: Path, printed: Path, profile: Path) -> str:
    """What it said; a profile of its own keeps it apart from a browser that is open."""
    words = [
        program,
        "--headless",
        "--disable-gpu",
        "--no-first-run",
        "--disable-extensions",
        "--disable-dev-shm-usage",
        "--no-pdf-header-footer",
        f"--user-data-dir={profile}",
        f"--print-to-pdf={printed}",
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        words.append("--no-sandbox")  # its sandbox refuses to be started by root
    try:
        ended = subprocess.run(  # noqa: S603  the program that the user has, and words of ours
            [*words, source.as_uri()],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StoreError(f"{program} did not print within {_LONGEST_S:.0f} seconds") from None
    except OSError as error:
        raise StoreError(f"cannot start {program}: {error.strerror or error}") from error
    return ended.stderr


# --- The brief, and its appendix

# Of a table; who wants the others takes the page or the workbook.
MOST_ROWS = 60
BRIEF_PAGES = 2


class _Size(NamedTuple):
    """How much a brief holds: rows of a table, caveats, and the longest of these in characters."""

    rows: int
    caveats: int
    longest: int


# From large to small: the first that prints on two pages is taken. The last holds what no brief lacks.
_SIZES = (_Size(14, 10, 400), _Size(8, 6, 300), _Size(4, 3, 200))
# Sections that say what it cost, the best first.
_COST = ("value", "cost")


class _Brief(NamedTuple):
    """``size``: the place in `_SIZES`."""

    size: int
    rows: int
    picture: Picture | None
    table: ReportTable | None
    cost_picture: Picture | None
    cost_table: ReportTable | None
    caveats: tuple[str, ...]


def _brief(report: Report, place: int) -> _Brief:
    size = _SIZES[place]
    cost = [section for name in _COST for section in report.sections if section.anchor == name]
    others = [section for section in report.sections if section not in cost]
    answered = next((table for section in others for table in section.tables if table.rows), None)
    caveats = [said.text for said in report.lead[3:]]
    caveats += [said.text for section in cost for said in section.sentences if said.text not in caveats]
    return _Brief(
        place,
        size.rows,
        next((picture for section in others for picture in section.pictures), None),
        report.front or answered,
        next((picture for section in cost for picture in section.pictures), None),
        next((table for section in cost for table in section.tables if table.rows), None),
        tuple(shortened(text, size.longest) for text in caveats[: size.caveats]),
    )


def print_report(report: Report, path: Path, program: str, *, appendix: bool = False) -> None:
    """Print a report: a brief of two pages, and all of it behind as an ``appendix``; whole where it has no
    more than one section, or describes an experiment.

    Raises StoreError: the program prints nothing, or the file cannot be written.
    """
    if report.kind == "description" or len(report.sections) < 2:
        write_bytes_atomic(path, _printed(paper_page(report), program))
        return
    for place in range(len(_SIZES)):
        printed = _printed(paper_page(report, brief=place, appendix=False), program)
        if _page_count(printed) <= BRIEF_PAGES:
            break
    if appendix:
        printed = _printed(paper_page(report, brief=place), program)
    write_bytes_atomic(path, printed)


_PAGE_OBJECT = re.compile(rb"/Type\s*/Page\b")


def _page_count(printed: bytes) -> int:
    """Chromium writes the objects of pages as plain text."""
    return len(_PAGE_OBJECT.findall(printed))


def paper_page(report: Report, *, brief: int | None = None, appendix: bool = True) -> bytes:
    """``brief``: its size, or none; ``appendix``: whether the sections follow. Texts are escaped, and
    pictures are images, which run nothing."""
    style = (files("coeval.reports.site") / "paper.css").read_text(encoding="utf-8")
    policy = f"default-src 'none'; style-src {script_hash(style)}; img-src data:; base-uri 'none'"

    def image(picture: Picture) -> str:
        drawn = base64.b64encode(picture_svg(picture, report).encode("utf-8", "replace")).decode()
        return f"data:image/svg+xml;base64,{drawn}"

    page = page_template("paper.html").render(
        report=report,
        shown=report.shown,
        policy=policy,
        style=Markup(style),  # noqa: S704  our own file
        image=image,
        most=MOST_ROWS,
        brief=None if brief is None else _brief(report, brief),
        appendix=appendix,
        version=__version__,
    )
    return page.encode("utf-8", "replace")
