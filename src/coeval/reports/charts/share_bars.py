"""Shares of a whole, one bar for each name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from coeval.reports.charts.chart_spec import chart_spec, named, names_axis, names_legend, text_list

__all__ = ["share_bars"]

_STEP = 26


def share_bars(
    table: str, fields: tuple[str, str], names: Sequence[str], parts: Sequence[str], *, ranked: bool = False
) -> dict[str, Any]:
    """Of a table with a name and a part in its ``fields``, and the columns ``share`` (0 to 1) and ``count``.
    Where parts are ``ranked``, the first has the strongest of one colour."""
    name, part = fields
    legend = names_legend(parts, columns=2 if len(parts) > 3 else 3)
    shades = [1 - 0.75 * place / max(len(parts) - 1, 1) for place in range(len(parts))]
    colour: dict[str, Any] = {
        "color": alt.Color(f"{part}:N", scale=alt.Scale(domain=list(parts)), legend=legend)
    }
    if ranked:
        scale = alt.Scale(domain=list(parts), range=shades)
        colour = {"opacity": alt.Opacity(f"{part}:N", sort=list(parts), scale=scale, legend=legend)}
    chart = (
        alt.Chart(named(table))
        .transform_calculate(order=f"indexof({text_list(parts)}, datum['{part}'])")
        .mark_bar(cornerRadius=2)
        .encode(
            y=alt.Y(f"{name}:N", sort=list(names), title=None, axis=names_axis(names)),
            x=alt.X(
                "share:Q",
                title=None,
                scale=alt.Scale(domainMax=1, clamp=True),
                axis=alt.Axis(format=".0%", tickCount=5),
            ).stack("zero"),
            order="order:Q",
            tooltip=[
                alt.Tooltip(f"{name}:N"),
                alt.Tooltip(f"{part}:N"),
                alt.Tooltip("share:Q", format=".1%"),
                alt.Tooltip("count:Q", format=","),
            ],
            **colour,
        )
    )
    return chart_spec(chart, max(len(names), 1) * _STEP)
