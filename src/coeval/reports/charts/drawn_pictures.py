"""Pictures of a report as files: SVG, and PNG for print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import vl_convert

from coeval.core.errors import UsageError
from coeval.core.text import join_names
from coeval.reports.charts.chart_spec import escape_row_texts, resolve_short_names
from coeval.reports.charts.themes import LIGHT, theme_config
from coeval.reports.content import Picture, Report

# What journals ask of pictures in print.
PPI = 300
# Pixels at 72 to an inch: ten inches.
_WIDTH = 720.0


class DrawnPicture(NamedTuple):
    """A picture in both formats; ``name`` is the beginning of a file's name."""

    name: str
    svg: str
    png: bytes

    def __repr__(self) -> str:
        return f"DrawnPicture({self.name!r})"

    def _repr_svg_(self) -> str:
        return self.svg


def draw_pictures(report: Report) -> Iterator[DrawnPicture]:
    """Draw all pictures of a report, one by one."""
    return (draw_picture(report, name) for name in _pictures_by_name(report))


def draw_picture(report: Report, name: str = "") -> DrawnPicture:
    """Draw one picture of a report, by default the first. Raises UsageError: no picture has that name."""
    pictures = _pictures_by_name(report)
    if (picture := pictures.get(name or next(iter(pictures), ""))) is None:
        others = f" {name}; there are {join_names(pictures)}" if pictures else ""
        raise UsageError(f"the report has no picture{others}")
    spec = _fill_names_width_and_rows(picture, report)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", picture.name).strip(".-")
    on_white = {**theme_config(LIGHT), "background": LIGHT.background}
    svg = vl_convert.vegalite_to_svg(spec, config=on_white, allowed_base_urls=[])
    png = vl_convert.vegalite_to_png(spec, config=on_white, allowed_base_urls=[], ppi=PPI)
    return DrawnPicture(name or "picture", svg, png)


def _pictures_by_name(report: Report) -> dict[str, Picture]:
    return {picture.name: picture for section in report.sections for picture in section.pictures}


def _fill_names_width_and_rows(picture: Picture, report: Report) -> dict[str, Any]:
    """Return the specification with its rows and labels, and a width in place of the page's."""
    spec: dict[str, Any] = resolve_short_names(picture.spec, report.labels)
    if spec.get("width") == "container":
        limits = spec.get("usermeta", {})
        spec["width"] = max(min(_WIDTH, float(limits.get("width", _WIDTH))), float(limits.get("least", 0)))
    rows = escape_row_texts(report.table(picture.table).to_flat_dicts())
    return {**spec, "datasets": {picture.table: rows}}
