"""Colours of charts, workbooks and pages, for light and dark.

The categories' colours are those of Okabe and Ito (2008), made for readers who tell few colours apart,
lightened or darkened until they stand out from their background by 3 : 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Theme(NamedTuple):
    """Colours, as ``#rrggbb``. ``least`` and ``most`` are the ends of a scale of amounts, ``against`` the
    other end of one with a middle; text is legible on all of them. ``page``: the colours that only
    style sheets of pages use, as CSS declares them."""

    background: str
    text: str
    faint: str
    lines: str
    categories: tuple[str, ...]
    least: str
    most: str
    against: str
    page: str


LIGHT = Theme(
    background="#ffffff",
    text="#1d2733",
    faint="#5b6775",
    lines="#e3e7ec",
    categories=("#0072b2", "#d55e00", "#009e73", "#b8629b", "#8c6d00", "#3d9ac9", "#6a51a3", "#7a7a7a"),
    least="#f1f5fa",
    most="#7db4e6",
    against="#f2b184",
    page=(
        "--ground: #ffffff; --raised: #f7f9fb; --faint: #566270; --lines: #dfe4ea; --link: #0a5a94; "
        "--mark: #fff4d6; --warn: #7d4300; --strong: #0a5a94; --edges: #8592a0; "
        "--shadow: rgb(20 40 60 / .22); --v0: #f6b98f; --v1: #fbdcc5; --v2: #f1f0ec; --v3: #cfe2f3; "
        "--v4: #9cc6ea; --marked: #ffe9a8; --high: #1c6b34; --medium: #7a5300; --low: #a32b14;"
    ),
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
    page=(
        "--ground: #12171e; --raised: #1a212a; --faint: #a3b0be; --lines: #2f3945; --link: #7cc0f2; "
        "--mark: #37301d; --warn: #f3b562; --strong: #7cc0f2; --edges: #6b7988; "
        "--shadow: rgb(0 0 0 / .6); --v0: #7a3c16; --v1: #4d2c18; --v2: #2a2f36; --v3: #1d3a55; "
        "--v4: #25588a; --marked: #5c4a12; --high: #7fd39a; --medium: #f0c36a; --low: #ff9c85;"
    ),
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


def page_colours_css() -> str:
    """Return the style sheet of colours that pages' other sheets use by name: dark where the reader's system
    is, or the page's toggle says so."""
    light, dark = (
        f"color-scheme: {scheme}; --text: {theme.text}; {theme.page} "
        + " ".join(f"--c{number}: {colour};" for number, colour in enumerate(theme.categories))
        for scheme, theme in (("light", LIGHT), ("dark", DARK))
    )
    return (
        f":root {{ {light} }}\n"
        f'@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ {dark} }} }}\n'
        f':root[data-theme="dark"] {{ {dark} }}\n'
    )
