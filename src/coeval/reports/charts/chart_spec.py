"""Parts of pictures as Vega-Lite has them: one named data set, without colours or sizes.

Colours, fonts and backgrounds come from the theme that a picture is drawn in
(`coeval.reports.charts.drawn_pictures`). Its width is its container's, between ``least`` and ``width`` in
its ``usermeta``; a page scrolls what is wider than its container. Heights are numbers: Vega-Lite warns of
steps beside a width that follows. If ``usermeta`` names a ``row`` and a ``step``, the height is ``step``
for each value of the column ``row``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from coeval.core.foreign import decode
from coeval.core.plain import escape_line
from coeval.core.shown_names import ShownNames, fit_names

Spec: TypeAlias = dict[str, Any]
"""A part of a Vega-Lite specification."""

_KINDS = {"N": "nominal", "O": "ordinal", "Q": "quantitative"}

# Characters of a name beside a picture: some 200 pixels.
LONGEST_NAME = 30
# Pixels of a picture's place below which names have fewer characters: they take a third of a telephone.
_NARROW, _LONGEST_NARROW = 480, 16

# Pixels: a legend's sign with its margins, a character of 12 points, and an axis with its labels.
_LEGEND_SYMBOL, _CHARACTER, _AXIS_ROOM = 25, 7, 60

_OBJECT_PROPERTIES = frozenset(
    ("constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString",
     "valueOf", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__", "__proto__")
)  # fmt: skip
_NAME_PLACEHOLDER = re.compile("⟦([^⟧]*)⟧")
# A joiner: it has no width, so that readers see the same text.
_JOINER = "\u200d"


def encode_column(typed_name: str, **settings: Any) -> Spec:
    """Return the channel of a column given as ``step:Q``, quantitative; ``N`` is nominal, ``O`` ordinal."""
    field, _, kind = typed_name.rpartition(":")
    return {"field": field, "type": _KINDS[kind], **settings}


def encode_columns(*typed_names: str) -> list[Spec]:
    """Return tooltip channels of columns, given as in `encode_column`."""
    return [encode_column(name) for name in typed_names]


def filter_rows(condition: str) -> Spec:
    """Return a transform that keeps the rows for which a Vega expression is true."""
    return {"filter": condition}


def add_columns(**expressions: str) -> list[Spec]:
    """Return transforms that add columns, each computed by a Vega expression."""
    return [{"calculate": expression, "as": name} for name, expression in expressions.items()]


NUMBER_ROWS: Spec = {"window": [{"op": "row_number", "as": "place"}]}
"""A transform that numbers rows from 1 on, as ``place``."""


def scale_to_points(*measures: str) -> list[Spec]:
    """Return transforms that multiply measures and their intervals by 100; missing values stay missing."""
    fields = [f"{measure}{end}" for measure in measures for end in ("", "_low", "_high")]
    return add_columns(
        **{field: f"isValid(datum['{field}']) ? 100 * datum['{field}'] : null" for field in fields}
    )


def keep_rows_with_ends(measure: str) -> list[Spec]:
    """Keep the rows that have the measure, with ``begin`` and ``end`` of its interval; one without an
    interval is a point, since an axis needs values."""
    ends = {
        end: f"isValid(datum.{measure}_{bound}) ? datum.{measure}_{bound} : datum.{measure}"
        for end, bound in (("begin", "low"), ("end", "high"))
    }
    return [filter_rows(f"isValid(datum.{measure})"), *add_columns(**ends)]


def make_layer(mark_type: str, encoding: Spec, *transforms: Spec, **mark_settings: Any) -> Spec:
    """Make a layer of marks of one type, for the rows that the transforms leave."""
    return {"mark": {"type": mark_type, **mark_settings}, "encoding": encoding, "transform": [*transforms]}


def fill_opacity(condition: str) -> Spec:
    """Return a channel of opacity that fills a mark if the Vega expression is true."""
    return {"condition": {"test": condition, "value": 1}, "value": 0}


def interval_layers(
    measure: str, ends: tuple[Spec, str], size: int, width: float = 3, **shared_channels: Any
) -> list[Spec]:
    """Return layers of an interval with a mark on it, filled if ``sure`` is true. ``ends``: channel of the
    low end, column of the high one."""
    low, high = ends
    at = {**shared_channels, "x": encode_column(f"{measure}:Q")}
    rule = {**shared_channels, "x": low, "x2": {"field": high}}
    return [
        make_layer("rule", rule, strokeWidth=width, strokeCap="round"),
        make_layer("point", at, size=size, strokeWidth=2),
        make_layer("point", at | {"opacity": fill_opacity("datum.sure")}, filled=True, size=size),
    ]


def measure_tooltip(
    measure: str, counted: str = "", *, title: str = "", number_format: str = ".1f"
) -> list[Spec]:
    """Return tooltip channels of a measure: value, ends of its interval, and its n under the title
    ``counted``."""
    value = encode_column(f"{measure}:Q", title=title or measure, format=number_format)
    low = encode_column(f"{measure}_low:Q", title="from", format=number_format)
    high = encode_column(f"{measure}_high:Q", title="to", format=number_format)
    return [value, low, high, *([encode_column(f"{measure}_n:Q", title=counted)] if counted else [])]


def colour_by_student(models: Sequence[str]) -> Spec:
    """Return a colour channel by student, the same in all pictures that name the same ``models``."""
    return encode_column("student:N", legend=None, scale={"domain": list(models)})


def names_axis(
    names: Iterable[str], longest: int = LONGEST_NAME, *, narrow: int = _LONGEST_NARROW, **settings: Any
) -> Spec:
    """Return an axis of names, shortened as by `short_name_expression`."""
    labels = {"labelExpr": short_name_expression(names, longest, narrow=narrow), "labelLimit": 0}
    return {**labels, "ticks": False, "domain": False, "grid": False, **settings}


def names_legend(names: Iterable[str], **settings: Any) -> Spec:
    """Return a legend above a picture: short names in as many columns as there is room for, three at most."""
    names = list(names)
    entry_width = _LEGEND_SYMBOL + _CHARACTER * min(LONGEST_NAME, max(map(len, names), default=0))
    two, three = (_AXIS_ROOM + count * entry_width for count in (2, 3))
    columns = f"containerSize()[0] < {two} ? 1 : containerSize()[0] < {three} ? 2 : 3"
    return {
        "labelExpr": short_name_expression(names, narrow=24),
        "labelLimit": 0,
        "columns": {"expr": columns},
        "title": None,
        "orient": "top",
        **settings,
    }


def short_name_expression(
    names: Iterable[str],
    longest: int = LONGEST_NAME,
    name_expression: str = "datum.label",
    *,
    narrow: int = _LONGEST_NARROW,
) -> str:
    """Return a placeholder, for `resolve_short_names`, of the short name of what ``name_expression`` yields;
    ``longest``, ``narrow``: its most characters, and those in a narrow picture."""
    escaped = [_escape_chart_text(name) for name in names]
    return f"⟦{json.dumps(_ShortNames(escaped, longest, min(longest, narrow), name_expression))}⟧"


class _ShortNames(NamedTuple):
    """What `short_name_expression` was called with, until the labels are known."""

    names: list[str]
    longest: int
    narrow: int
    name_expression: str

    def build_expression(self, labels: Mapping[str, str]) -> str:
        shown_names = ShownNames(labels)
        texts = {name: shown_names.text(name) for name in self.names}
        if len(set(texts.values())) < len(texts):  # a label is also the name of something that is no model
            texts = {name: name for name in self.names}
        wide, narrow = (
            _lookup_expression(self.name_expression, {name: short[text] for name, text in texts.items()})
            for short in (fit_names(texts.values(), most) for most in (self.longest, self.narrow))
        )
        return wide if wide == narrow else f"containerSize()[0] < {_NARROW} ? {narrow} : {wide}"


def resolve_short_names(part: Any, labels: Mapping[str, str]) -> Any:
    """Replace each `short_name_expression` in a specification by an expression that looks up the name people
    read, shortened (`fit_names`). Texts are escaped: Vega makes expressions of names, where U+2028 ends
    a line, and the name of a property that every object has (``toString``) is an error."""
    match part:
        case str():
            text = _escape_chart_text(part)
            return _NAME_PLACEHOLDER.sub(
                lambda match: decode(match[1], _ShortNames).build_expression(labels), text
            )
        case list():
            return [resolve_short_names(child, labels) for child in part]
        case dict():
            return {name: resolve_short_names(child, labels) for name, child in part.items()}
        case _:
            return part


def _escape_chart_text(text: str) -> str:
    """Escape a text as ``pictures.js`` escapes the rows of a page."""
    return f"{text}{_JOINER}" if text in _OBJECT_PROPERTIES else escape_line(text)


def _lookup_expression(name_expression: str, labels: dict[str, str]) -> str:
    """Return an expression that looks a name up in lists; in an object it could be a property that every
    object has."""
    cut = {name: label for name, label in labels.items() if label != name}
    if not cut:
        return name_expression
    at = f"indexof({json.dumps(list(cut))}, {name_expression})"
    return f"({at} < 0 ? {name_expression} : {json.dumps(list(cut.values()))}[{at}])"


def quote_names(names: Iterable[str]) -> str:
    """Return names as a list in a Vega expression, escaped like the rows."""
    return json.dumps([_escape_chart_text(name) for name in names])


def escape_row_texts(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with all texts escaped for Vega."""
    return [
        {name: _escape_chart_text(cell) if isinstance(cell, str) else cell for name, cell in row.items()}
        for row in rows
    ]


def chart_spec(
    table: str, layers: Sequence[Spec], height: float, *transforms: Spec, width: float | None = None
) -> Spec:
    """Draw layers over the rows of a table. ``transforms`` apply to all; ``width``: pixels beyond which more
    room does not help."""
    spec: Spec = {"data": {"name": table}, "transform": [*transforms], "layer": [*layers]}
    limits = {} if width is None else {"usermeta": {"width": width}}
    return {**spec, "width": "container", "height": height, **limits}
