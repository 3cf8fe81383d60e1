"""The frame of every picture: one named data set, no colours and no sizes of its own.

Colours, fonts and backgrounds come of the theme that it is drawn in (`coeval.reports.charts.theme`), the
width of whatever it stands in. Heights are numbers: Vega-Lite warns of steps beside a width that follows.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import altair as alt

__all__ = ["AnyChart", "chart_spec", "named"]

AnyChart: TypeAlias = alt.Chart | alt.LayerChart | alt.FacetChart | alt.ConcatChart


def named(table: str) -> alt.NamedData:
    """The rows of a table, which are the only data set of its pictures."""
    return alt.NamedData(name=table)


def chart_spec(chart: AnyChart) -> dict[str, Any]:
    """Plain data, without what Altair adds to every specification."""
    spec: dict[str, Any] = chart.to_dict()
    spec.pop("config", None)
    return spec
