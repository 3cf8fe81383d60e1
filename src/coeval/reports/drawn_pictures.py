"""Pictures of a report as files: SVG, and PNG for print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import vl_convert

from coeval.core.errors import UsageError
from coeval.core.text import join_names
from coeval.reports.chart_spec import make_rows_plain, resolve_short_names
from coeval.reports.content import Picture, Report

# --- Themes: light and dark
#
# The categories' colours are those of Okabe and Ito (2008), made for readers who tell few colours apart,
# lightened or darkened until they stand out from their background by 3 : 1.


class Theme(NamedTuple):
    """Colours, as ``#rrggbb``. ``least`` and ``most`` are the ends of a scale of amounts, ``against`` the
    other end of one with a middle; text is legible on all of them."""

    background: str
    text: str
    faint: str
    lines: str
    categories: tuple[str, ...]
    least: str
    most: str
    against: str


LIGHT = Theme(
    background="#ffffff",
    text="#1d2733",
    faint="#5b6775",
    lines="#e3e7ec",
    categories=("#0072b2", "#d55e00", "#009e73", "#b8629b", "#8c6d00", "#3d9ac9", "#6a51a3", "#7a7a7a"),
    least="#f1f5fa",
    most="#7db4e6",
    against="#f2b184",
)
DARK = Theme(
    background="#171c23",
    text="#e6eaf0",
    faint="#9aa7b5",
    lines="#2c3541",
    categories=("#4aa8e0", "#f0884a", "#2fc29a", "#db8fc2", "#cfae3a", "#86cdf2", "#a996de", "#a3a3a3"),
    least="#1f2833",
    most="#2b6596",
    against="#9a5424",
)


def theme_config(theme: Theme) -> dict[str, Any]:
    """Return a theme as a Vega-Lite ``config``."""
    return {
        "background": None,
        "font": "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
        "view": {"stroke": None},
        "axis": {
            "labelColor": theme.text,
            "titleColor": theme.faint,
            "titleFontWeight": "normal",
            "gridColor": theme.lines,
            "domainColor": theme.lines,
            "tickColor": theme.lines,
            "labelFontSize": 12,
            "titleFontSize": 12,
        },
        "legend": {
            "labelColor": theme.text,
            "titleColor": theme.faint,
            "titleFontWeight": "normal",
            "labelFontSize": 12,
        },
        "header": {"labelColor": theme.text, "titleColor": theme.faint},
        "title": {"color": theme.text},
        "text": {"color": theme.text, "fontSize": 12},
        "point": {"color": theme.text},
        "rule": {"color": theme.faint},
        "range": {
            "category": list(theme.categories),
            "ramp": [theme.least, theme.most],
            "heatmap": [theme.least, theme.most],
            "diverging": [theme.against, theme.least, theme.most],
        },
    }


# What journals ask of pictures in print.
PPI = 300
# Pixels at 72 to an inch: ten inches.
_WIDTH = 720.0


class Figure(NamedTuple):
    """A picture in both formats; ``name`` is the beginning of a file's name."""

    name: str
    svg: str
    png: bytes

    def __repr__(self) -> str:
        return f"Figure({self.name!r})"

    def _repr_svg_(self) -> str:
        return self.svg


def draw_figures(report: Report) -> Iterator[Figure]:
    """Draw all pictures of a report, one by one."""
    return (draw_figure(report, name) for name in _pictures_by_name(report))


def draw_figure(report: Report, name: str = "") -> Figure:
    """Draw one picture of a report, by default the first. Raises UsageError: no picture has that name."""
    pictures = _pictures_by_name(report)
    if (picture := pictures.get(name or next(iter(pictures), ""))) is None:
        others = f" {name}; there are {join_names(pictures)}" if pictures else ""
        raise UsageError(f"the report has no picture{others}")
    spec, name = _complete_spec(picture, report), re.sub(r"[^A-Za-z0-9._-]+", "-", picture.name).strip(".-")
    on_white = {**theme_config(LIGHT), "background": LIGHT.background}
    svg = vl_convert.vegalite_to_svg(spec, config=on_white, allowed_base_urls=[])
    png = vl_convert.vegalite_to_png(spec, config=on_white, allowed_base_urls=[], ppi=PPI)
    return Figure(name or "picture", svg, png)


def _pictures_by_name(report: Report) -> dict[str, Picture]:
    return {picture.name: picture for section in report.sections for picture in section.pictures}


def _complete_spec(picture: Picture, report: Report) -> dict[str, Any]:
    """Return the specification with its rows and labels, and a width in place of the page's."""
    spec: dict[str, Any] = resolve_short_names(picture.spec, report.labels)
    if spec.get("width") == "container":
        limits = spec.get("usermeta", {})
        spec["width"] = max(min(_WIDTH, float(limits.get("width", _WIDTH))), float(limits.get("least", 0)))
    return {**spec, "datasets": {picture.table: make_rows_plain(report.table(picture.table).to_dicts())}}
