"""The frame of every picture: one named data set, no colours and no sizes of its own.

Colours, fonts and backgrounds come of the theme that it is drawn in (`coeval.reports.charts.theme`), the
width of whatever it stands in, up to the ``width`` in its ``usermeta``, and no less than ``least``: where
there is less room, a page lets it be moved to and fro. Heights are numbers: Vega-Lite warns of
steps beside a width that follows. Where ``usermeta`` names a ``row`` and a ``step``, the height is that of
the values that the column ``row`` has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import altair as alt

__all__ = ["AnyChart", "chart_spec", "model_colour", "named", "names_axis"]

AnyChart: TypeAlias = alt.Chart | alt.LayerChart | alt.FacetChart


def named(table: str) -> alt.NamedData:
    """The rows of a table, which are the only data set of its pictures."""
    return alt.NamedData(name=table)


def model_colour(field: str, models: Sequence[str]) -> alt.Color:
    """Every model has the same colour in all pictures of a report that are given the same names."""
    return alt.Color(f"{field}:N", legend=None, scale=alt.Scale(domain=list(models)))


def names_axis(**settings: Any) -> alt.Axis:
    """Names in place of numbers; long ones are cut off."""
    return alt.Axis(**{"labelLimit": 200, "ticks": False, "domain": False, "grid": False, **settings})


def chart_spec(chart: AnyChart, height: float, width: float | None = None) -> dict[str, Any]:
    """Plain data, without what Altair adds to every specification; ``width`` is the most that it makes good
    use of."""
    spec: dict[str, Any] = chart.properties(width="container", height=height).to_dict()
    spec.pop("config", None)
    if width is not None:
        spec["usermeta"] = {"width": width}
    return spec
