"""The parts of pictures, as Vega-Lite has them: one named data set, no colours and no sizes of its own.

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
_SIGN, _CHARACTER, _BESIDE = 25, 7, 60

_OF_EVERY_OBJECT = frozenset(
    ("constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString",
     "valueOf", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__", "__proto__")
)  # fmt: skip
_SHOWN = re.compile("⟦([^⟧]*)⟧")
# A joiner: it has no width, and is no other text for those who read it.
_UNSEEN = "\u200d"


def column(name: str, **settings: Any) -> Spec:
    """A channel: a column as ``step:Q``, quantitative; ``N`` is nominal, ``O`` ordinal."""
    field, _, kind = name.rpartition(":")
    return {"field": field, "type": _KINDS[kind], **settings}


def columns_noted(*names: str) -> list[Spec]:
    """Lines of a note: columns as in `column`."""
    return [column(name) for name in names]


def where(condition: str) -> Spec:
    """A transform that keeps the rows of which an expression holds."""
    return {"filter": condition}


def computed(**expressions: str) -> list[Spec]:
    """Transforms that add columns."""
    return [{"calculate": expression, "as": name} for name, expression in expressions.items()]


NUMBERED: Spec = {"window": [{"op": "row_number", "as": "place"}]}
"""A transform that numbers rows from 1 on, as ``place``."""


def in_points(*measures: str) -> list[Spec]:
    """Scores and their intervals times 100, as people read them; what is missing stays missing."""
    fields = [f"{measure}{end}" for measure in measures for end in ("", "_low", "_high")]
    return computed(
        **{field: f"isValid(datum['{field}']) ? 100 * datum['{field}'] : null" for field in fields}
    )


def with_ends(measure: str) -> list[Spec]:
    """The rows that have the measure, with ``begin`` and ``end`` of its interval: without one it is a point,
    as an axis cannot be made of nothing."""
    ends = {
        end: f"isValid(datum.{measure}_{of}) ? datum.{measure}_{of} : datum.{measure}"
        for end, of in (("begin", "low"), ("end", "high"))
    }
    return [where(f"isValid(datum.{measure})"), *computed(**ends)]


def marks(kind: str, encoding: Spec, *transform: Spec, **look: Any) -> Spec:
    """A layer: marks of one kind, for the rows that the transforms leave."""
    return {"mark": {"type": kind, **look}, "encoding": encoding, "transform": [*transform]}


def filled_where(condition: str) -> Spec:
    """A channel of opacity."""
    return {"condition": {"test": condition, "value": 1}, "value": 0}


def interval_marks(
    measure: str, ends: tuple[Spec, str], size: int, width: float = 3, **shared: Any
) -> list[Spec]:
    """An interval with a mark on it, which is filled where ``sure`` holds; ``shared`` are channels of all."""
    low, high = ends
    at = {**shared, "x": column(f"{measure}:Q")}
    return [
        marks("rule", {**shared, "x": low, "x2": {"field": high}}, strokeWidth=width, strokeCap="round"),
        marks("point", at, size=size, strokeWidth=2),
        marks("point", at | {"opacity": filled_where("datum.sure")}, filled=True, size=size),
    ]


def coloured_marks(measure: str, low: Spec, **shared: Any) -> list[Spec]:
    """An interval with a filled mark on it; ``shared`` are channels of both, a colour among them."""
    ends = {**shared, "x": low, "x2": {"field": f"{measure}_high"}}
    at = {**shared, "x": column(f"{measure}:Q")}
    return [
        marks("rule", ends, strokeWidth=3, strokeCap="round"),
        marks("point", at, filled=True, size=110, opacity=1),
    ]


def measure_tips(measure: str, counted: str = "", *, title: str = "", written: str = ".1f") -> list[Spec]:
    """What a note tells of a measure: its value, the ends of its interval, and of how many it is."""
    value = column(f"{measure}:Q", title=title or measure, format=written)
    low = column(f"{measure}_low:Q", title="from", format=written)
    high = column(f"{measure}_high:Q", title="to", format=written)
    return [value, low, high, *([column(f"{measure}_n:Q", title=counted)] if counted else [])]


def student_colour(models: Sequence[str]) -> Spec:
    """Every model has the same colour in all pictures of a report that are given the same names."""
    return column("student:N", legend=None, scale={"domain": list(models)})


def names_axis(
    names: Iterable[str], longest: int = LONGEST_NAME, *, narrow: int = _LONGEST_NARROW, **settings: Any
) -> Spec:
    """Names in place of numbers, long ones as `shown_name` has them."""
    shown = {"labelExpr": shown_name(names, longest, narrow=narrow), "labelLimit": 0}
    return {**shown, "ticks": False, "domain": False, "grid": False, **settings}


def names_legend(names: Iterable[str], **settings: Any) -> Spec:
    """A legend above a picture, with names as `shown_name` has them, in as many columns as there is room for:
    three at most."""
    names = list(names)
    each = _SIGN + _CHARACTER * min(LONGEST_NAME, max(map(len, names), default=0))
    two, three = (_BESIDE + count * each for count in (2, 3))
    columns = f"containerSize()[0] < {two} ? 1 : containerSize()[0] < {three} ? 2 : 3"
    shown = {
        "labelExpr": shown_name(names, narrow=24),
        "labelLimit": 0,
        "columns": {"expr": columns},
    }
    return {**shown, "title": None, "orient": "top", **settings}


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
            for short in (fit_names(shown.values(), most) for most in (self.longest, self.narrow))
        )
        return wide if wide == narrow else f"containerSize()[0] < {_NARROW} ? {narrow} : {wide}"


def with_labels(part: Any, labels: Mapping[str, str]) -> Any:
    """A specification in which each `shown_name` is an expression: what people read in place of a
    model's name, as short as is wanted (`fit_names`). Texts went through `escape_line`: Vega makes
    expressions of names, where U+2028 ends a line, and the name of a property that every object has
    (``toString``) is an error."""
    match part:
        case str():
            text = _chart_text(part)
            return _SHOWN.sub(lambda found: decode(found[1], _ShownNames).expression(labels), text)
        case list():
            return [with_labels(each, labels) for each in part]
        case dict():
            return {name: with_labels(each, labels) for name, each in part.items()}
        case _:
            return part


def _chart_text(text: str) -> str:
    """The same that ``pictures.js`` has for the rows of a page."""
    return f"{text}{_UNSEEN}" if text in _OF_EVERY_OBJECT else escape_line(text)


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


def plain_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows with all texts as `escape_line` has them."""
    return [
        {name: _chart_text(cell) if isinstance(cell, str) else cell for name, cell in row.items()}
        for row in rows
    ]


def chart_spec(
    table: str, layers: Sequence[Spec], height: float, *transform: Spec, width: float | None = None
) -> Spec:
    """Layers over the rows of a table, one on the other; ``transform`` is that of all; ``width`` is the most
    that the picture makes good use of."""
    spec: Spec = {"data": {"name": table}, "transform": [*transform], "layer": [*layers]}
    room = {} if width is None else {"usermeta": {"width": width}}
    return {**spec, "width": "container", "height": height, **room}
