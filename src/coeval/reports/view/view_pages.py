"""The server's own pages, which begin alike (``frame.html``)."""

from __future__ import annotations

from functools import cache

import jinja2

__all__ = ["view_page"]


@cache
def view_page(name: str) -> str:
    """``overview``, ``folder`` or ``waiting``; there is nothing foreign in them."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("coeval.reports", "view"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(f"{name}.html").render()
