"""How every picture is drawn, in the light and in the dark: the one place with colours.

The categories' colours are those of Okabe and Ito (2008), made for readers who tell few colours apart,
lightened or darkened until they stand out from their background by 3 : 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["DARK", "LIGHT", "Theme", "theme_config"]


class Theme(NamedTuple):
    """Colours, as ``#rrggbb``. ``least`` and ``most`` are the ends of a scale of amounts, ``against`` the
    other end of one with a middle: text is to be read on all of them."""

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
    """A Vega-Lite ``config``."""
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
