"""Colours of charts, workbooks and pages, for light and dark; ``themes.toml`` names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec


class Theme(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Colours, as ``#rrggbb``. ``least`` and ``most`` are the ends of a scale of amounts, ``against`` the
    other end of one with a middle; text is legible on all of them. ``page``: the colours that only
    style sheets of pages use, by the name of their CSS variable."""

    background: str
    text: str
    faint: str
    lines: str
    categories: tuple[str, ...]
    least: str
    most: str
    against: str
    page: dict[str, str]


_THEMES = msgspec.toml.decode(Path(__file__).with_name("themes.toml").read_bytes(), type=dict[str, Theme])
LIGHT, DARK = _THEMES["light"], _THEMES["dark"]


def theme_config(theme: Theme) -> dict[str, Any]:
    """Return a theme as a Vega-Lite ``config``."""
    labels = {
        "labelColor": theme.text,
        "titleColor": theme.faint,
        "titleFontWeight": "normal",
        "labelFontSize": 12,
    }
    lines = dict.fromkeys(("gridColor", "domainColor", "tickColor"), theme.lines)
    return {
        "background": None,
        "font": "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
        "view": {"stroke": None},
        "axis": labels | lines | {"titleFontSize": 12},
        "legend": labels,
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


def _declare_colours(scheme: str, theme: Theme) -> str:
    """Return a theme's CSS variables for pages of a ``color-scheme``."""
    categories = {f"c{number}": colour for number, colour in enumerate(theme.categories)}
    colours = {"text": theme.text} | theme.page | categories
    return f"color-scheme: {scheme}; " + " ".join(f"--{name}: {colour};" for name, colour in colours.items())


def page_colours_css() -> str:
    """Return the style sheet of colours that pages' other sheets use by name: dark where the reader's system
    is, or the page's toggle says so."""
    light, dark = _declare_colours("light", LIGHT), _declare_colours("dark", DARK)
    return (
        f":root {{ {light} }}\n"
        f'@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ {dark} }} }}\n'
        f':root[data-theme="dark"] {{ {dark} }}\n'
    )
