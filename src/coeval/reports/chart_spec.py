"""The frame of every picture: one named data set, no colours and no sizes of its own.

Colours, fonts and backgrounds come of the theme that it is drawn in (`coeval.reports.drawn_pictures`), the
width of whatever it stands in, up to the ``width`` in its ``usermeta``, and no less than ``least``: where
there is less room, a page lets it be moved to and fro. Heights are numbers: Vega-Lite warns of
steps beside a width that follows. Where ``usermeta`` names a ``row`` and a ``step``, the height is that of
the values that the column ``row`` has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import altair as alt

from coeval.core.foreign import decode
from coeval.core.plain import ShownNames, fitted_names, plain

AnyChart: TypeAlias = alt.Chart | alt.LayerChart | alt.FacetChart

# Characters of a name beside a picture: some 200 pixels.
LONGEST_NAME = 30
# Pixels of a picture's place below which names have fewer characters: they take a third of a telephone.
_NARROW, _LONGEST_NARROW = 480, 16

# Pixels: a legend's sign with its margins, a character of 12 points, and an axis with its labels.
_SIGN, _CHARACTER, _BESIDE = 25, 7, 60

_OF_EVERY_OBJECT = frozenset(
    ("constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString",
     "valueOf", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__", "__proto__")
)  # fmt: skip
_SHOWN = re.compile("⟦([^⟧]*)⟧")
# A joiner: it has no width, and is no other text for those who read it.
_UNSEEN = "\u200d"


def named(table: str) -> alt.NamedData:
    """The rows of a table, which are the only data set of its pictures."""
    return alt.NamedData(name=table)


def in_points(chart: alt.Chart, *measures: str) -> alt.Chart:
    """Scores and their intervals times 100, as people read them; what is missing stays missing."""
    fields = [f"{measure}{end}" for measure in measures for end in ("", "_low", "_high")]
    if not fields:
        return chart
    return chart.transform_calculate(
        **{field: f"isValid(datum['{field}']) ? 100 * datum['{field}'] : null" for field in fields}
    )


def with_ends(chart: alt.Chart, measure: str) -> alt.Chart:
    """The rows that have the measure, with ``begin`` and ``end`` of its interval: without one it is a point,
    as an axis cannot be made of nothing."""
    ends = {
        end: f"isValid(datum.{measure}_{of}) ? datum.{measure}_{of} : datum.{measure}"
        for end, of in (("begin", "low"), ("end", "high"))
    }
    return chart.transform_filter(f"isValid(datum.{measure})").transform_calculate(**ends)


def interval_marks(
    base: alt.Chart, measure: str, ends: tuple[alt.X, str], size: int, width: float = 3, **shared: Any
) -> list[alt.Chart]:
    """An interval with a mark on it, which is filled where ``sure`` holds; ``shared`` are channels of all."""
    low, high = ends
    line = base.mark_rule(strokeWidth=width, strokeCap="round").encode(x=low, x2=high, **shared)
    hollow = base.mark_point(size=size, strokeWidth=2).encode(x=f"{measure}:Q", **shared)
    sure = alt.condition("datum.sure", alt.value(1), alt.value(0))
    filled = base.mark_point(filled=True, size=size).encode(x=f"{measure}:Q", opacity=sure, **shared)
    return [line, hollow, filled]


def coloured_marks(base: alt.Chart, measure: str, low: alt.X, **shared: Any) -> list[alt.Chart]:
    """An interval with a filled mark on it; ``shared`` are channels of both, a colour among them."""
    line = base.mark_rule(strokeWidth=3, strokeCap="round").encode(x=low, x2=f"{measure}_high:Q", **shared)
    point = base.mark_point(filled=True, size=110, opacity=1).encode(x=f"{measure}:Q", **shared)
    return [line, point]


def measure_tips(
    measure: str, counted: str = "", *, title: str = "", written: str = ".1f"
) -> list[alt.Tooltip]:
    """What a note tells of a measure: its value, the ends of its interval, and of how many it is."""
    value = alt.Tooltip(f"{measure}:Q", title=title or measure, format=written)
    low = alt.Tooltip(f"{measure}_low:Q", title="from", format=written)
    high = alt.Tooltip(f"{measure}_high:Q", title="to", format=written)
    return [value, low, high, *([alt.Tooltip(f"{measure}_n:Q", title=counted)] if counted else [])]


def model_colour(field: str, models: Sequence[str]) -> alt.Color:
    """Every model has the same colour in all pictures of a report that are given the same names."""
    return alt.Color(f"{field}:N", legend=None, scale=alt.Scale(domain=list(models)))


def names_axis(
    names: Iterable[str], longest: int = LONGEST_NAME, *, narrow: int = _LONGEST_NARROW, **settings: Any
) -> alt.Axis:
    """Names in place of numbers, long ones as `shown_name` has them."""
    shown = {"labelExpr": shown_name(names, longest, narrow=narrow), "labelLimit": 0}
    return alt.Axis(**{**shown, "ticks": False, "domain": False, "grid": False, **settings})


def names_legend(names: Iterable[str], longest: int = LONGEST_NAME, **settings: Any) -> alt.Legend:
    """A legend above a picture, with names as `shown_name` has them, in as many columns as there is room for:
    three at most."""
    names = list(names)
    each = _SIGN + _CHARACTER * min(longest, max(map(len, names), default=0))
    two, three = (_BESIDE + count * each for count in (2, 3))
    columns = alt.ExprRef(expr=f"containerSize()[0] < {two} ? 1 : containerSize()[0] < {three} ? 2 : 3")
    shown = {"labelExpr": shown_name(names, longest, narrow=24), "labelLimit": 0, "columns": columns}
    return alt.Legend(**{**shown, "title": None, "orient": "top", **settings})


def shown_name(
    names: Iterable[str],
    longest: int = LONGEST_NAME,
    of: str = "datum.label",
    *,
    narrow: int = _LONGEST_NARROW,
) -> str:
    """An expression, once `with_labels` has seen it: what a picture calls the name that the expression ``of``
    gives, in so many characters; ``narrow``: how long it may be where the picture's place is narrow."""
    reported = _ShownNames([_chart_text(name) for name in names], longest, min(longest, narrow), of)
    return f"⟦{json.dumps(reported)}⟧"


class _ShownNames(NamedTuple):
    names: list[str]
    longest: int
    narrow: int
    of: str

    def expression(self, labels: Mapping[str, str]) -> str:
        known = ShownNames(labels)
        shown = {name: known.text(name) for name in self.names}
        if len(set(shown.values())) < len(shown):  # a label is also the name of something that is no model
            shown = {name: name for name in self.names}
        wide, narrow = (
            _looked_up(self.of, {name: short[text] for name, text in shown.items()})
            for short in (fitted_names(shown.values(), most) for most in (self.longest, self.narrow))
        )
        return wide if wide == narrow else f"containerSize()[0] < {_NARROW} ? {narrow} : {wide}"


def with_labels(part: Any, labels: Mapping[str, str]) -> Any:
    """A specification in which each `shown_name` is an expression: what people read in place of a
    model's name, as short as is wanted (`fitted_names`)."""
    match part:
        case str() if "⟦" in part:
            return _SHOWN.sub(lambda found: decode(found[1], _ShownNames).expression(labels), part)
        case list():
            return [with_labels(each, labels) for each in part]
        case dict():
            return {name: with_labels(each, labels) for name, each in part.items()}
        case _:
            return part


def _chart_text(text: str) -> str:
    """The same that ``pictures.js`` has for the rows of a page."""
    return f"{text}{_UNSEEN}" if text in _OF_EVERY_OBJECT else plain(text)


def _looked_up(of: str, labels: dict[str, str]) -> str:
    """In lists, not in an object: a name may be that of a property which every object has."""
    cut = {name: label for name, label in labels.items() if label != name}
    if not cut:
        return of
    at = f"indexof({json.dumps(list(cut))}, {of})"
    return f"({at} < 0 ? {of} : {json.dumps(list(cut.values()))}[{at}])"


def text_list(names: Iterable[str]) -> str:
    """Names as an expression has them: as they stand in rows."""
    return json.dumps([_chart_text(name) for name in names])


def plain_spec(part: Any) -> Any:
    """A specification, or rows, with all texts as `plain` has them. Vega makes expressions of names: there
    U+2028 ends a line, and the name of a property that every object has (``toString``) is an error."""
    match part:
        case str():
            return _chart_text(part)
        case list():
            return [plain_spec(each) for each in part]
        case dict():
            return {name: plain_spec(each) for name, each in part.items()}
        case _:
            return part


def chart_spec(chart: AnyChart, height: float, width: float | None = None) -> dict[str, Any]:
    """Plain data, without what Altair adds to every specification; ``width`` is the most that it makes good
    use of."""
    spec: Any = chart.properties(width="container", height=height).to_dict()
    spec.pop("config", None)
    if width is not None:
        spec["usermeta"] = {"width": width}
    found: dict[str, Any] = plain_spec(spec)
    return found
