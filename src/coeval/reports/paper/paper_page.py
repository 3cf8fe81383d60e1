"""A report as a page without any script, for printing: every picture drawn, every table open."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

import jinja2
from markupsafe import Markup

from coeval import __version__
from coeval.reports.charts.drawn_pictures import picture_svg
from coeval.reports.content.cell_text import row_texts
from coeval.reports.content.report_content import Picture, Report, ReportTable

__all__ = ["MOST_ROWS", "paper_page"]

MOST_ROWS = 60
"""Of a table; who wants the others takes the page or the workbook."""


def paper_page(report: Report) -> bytes:
    """Texts are escaped; pictures are images, which run nothing."""
    style = (files("coeval.reports.paper") / "paper.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'"

    def image(picture: Picture) -> str:
        drawn = base64.b64encode(picture_svg(picture, report).encode("utf-8", "replace")).decode()
        return f"data:image/svg+xml;base64,{drawn}"

    page = _template().render(
        report=report,
        policy=policy,
        style=Markup(style),  # noqa: S704  our own file
        image=image,
        most=MOST_ROWS,
        version=__version__,
    )
    return page.encode("utf-8", "replace")


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["texts"] = _texts
    text = (files("coeval.reports.paper") / "paper.html").read_text(encoding="utf-8")
    return environment.from_string(text)


def _texts(table: ReportTable) -> list[list[str]]:
    return row_texts(table.columns, table.rows[:MOST_ROWS])
