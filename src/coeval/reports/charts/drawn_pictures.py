"""Pictures of a report as files: SVG, and PNG for print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import vl_convert

from coeval.reports.charts.chart_spec import plain_spec, with_labels
from coeval.reports.charts.theme import LIGHT, theme_config
from coeval.reports.content.report_content import Picture, Report

__all__ = ["Figure", "figures", "picture_svg"]

PPI = 300
_WIDTH = 720.0
"""Pixels at 72 to an inch: ten inches."""


class Figure(NamedTuple):
    """A picture in both formats; ``name`` is the beginning of a file's name."""

    name: str
    svg: str
    png: bytes


def figures(report: Report) -> Iterator[Figure]:
    """All pictures of a report, one by one."""
    for section in report.sections:
        for picture in section.pictures:
            spec = _drawable(picture, report)
            svg = vl_convert.vegalite_to_svg(spec, config=_config(), allowed_base_urls=[])
            png = vl_convert.vegalite_to_png(spec, config=_config(), allowed_base_urls=[], ppi=PPI)
            yield Figure(_file_name(picture.name), svg, png)


def picture_svg(picture: Picture, report: Report) -> str:
    """One picture, as paper takes it."""
    spec = _drawable(picture, report)
    return str(vl_convert.vegalite_to_svg(spec, config=_config(), allowed_base_urls=[]))


def _drawable(picture: Picture, report: Report) -> dict[str, Any]:
    """With its rows, and a width of its own in place of the page's."""
    spec: dict[str, Any] = with_labels(picture.spec, report.labels)
    if spec.get("width") == "container":
        room = spec.get("usermeta", {})
        spec["width"] = max(min(_WIDTH, float(room.get("width", _WIDTH))), float(room.get("least", 0)))
    return {**spec, "datasets": {picture.table: plain_spec(report.table(picture.table).records())}}


def _config() -> dict[str, Any]:
    """On white, whatever it is laid on."""
    return {**theme_config(LIGHT), "background": LIGHT.background}


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "picture"
