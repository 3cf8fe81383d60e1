"""A number with its interval and counts; what is declared of each measure; and the one walk that writes them.

Measures are frozen records. Each field says by `ShownAs` what it is and where a reader finds it, beside JSON,
which hold every field: the walk below follows the records and knows none of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar, get_type_hints

import msgspec

from coeval.core.figures import FigureKind

if TYPE_CHECKING:  # they come with numpy and scipy, which a table of figures does not need
    from coeval.analysis.intervals import Bounds, Interval

_Figure = TypeVar("_Figure")


class Measured(NamedTuple):
    """A measure; None where it is not defined. ``low`` and ``high`` are its 95% interval, ``n`` the
    datapoints that it rests on, ``missing`` the (response, factor, judge) scores that it lacks."""

    value: float | None
    low: float | None
    high: float | None
    n: int | None
    missing: int | None


NOT_MEASURED = Measured(None, None, None, 0, 0)


def measured_with_bounds(value: float, bounds: Bounds | None, n: int, missing: int) -> Measured:
    """A measure that may not be defined (NaN), and its interval if it has one."""
    if not math.isfinite(value):
        return Measured(None, None, None, n, missing)
    low, high = bounds or (None, None)
    return Measured(value, low, high, n, missing)


def measured_from_interval(interval: Interval, missing: int | None) -> Measured:
    return Measured(interval.mean, interval.low, interval.high, interval.n, missing)


# --- What is declared of a measure

Analysis: TypeAlias = Literal[
    "all",
    "students",
    "teachers",
    "judges",
    "agreement",
    "robust",
    "labels",
    "calibration",
    "coverage",
    "items",
]
"""What `coeval analyze` shows by name."""

FILES = "JSON and CSV alone"
"""`ShownAs.elsewhere` of a figure that neither the terminal nor the page shows."""


class ShownAs(NamedTuple):
    """What a field of a record is, and where it is shown.

    ``column`` heads its column in the record's table, on the page and in the workbook, ``terminal`` that
    in the terminal. What has neither is shown ``elsewhere``: in a table or section of that name, or `FILES`.
    """

    meaning: str
    column: str = ""
    terminal: str = ""
    kind: FigureKind = "points"
    elsewhere: str = ""

    @property
    def places(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.column, self.terminal, self.elsewhere)))


class Part(NamedTuple):
    """What a part of all measures is, and which analyses show it; all but ``items`` are in ``all``."""

    meaning: str
    analyses: tuple[Analysis, ...] = ()


class Record(msgspec.Struct, frozen=True):
    """Measures that belong together. What is None by default is left out of files while it is None."""


class Entity(Record, frozen=True):
    """All measures of one thing, that often has a name. In JSON ``n``, ``missing`` and ``ci95`` stand beside
    them with the same nested keys; in CSV its name has a column."""


class ModelTasks(dict[str, Mapping[str, _Figure]]):
    """Figures of one model by task and metric: an `Entity` whose fields are tasks. ``units``: of each task
    and metric the unit, ``share`` where it is not there."""

    units: Mapping[tuple[str, str], str] = MappingProxyType({})


@cache
def field_declarations(record: type[Record]) -> dict[str, ShownAs | Part]:
    """By field, what is declared of it.

    Raises TypeError: a field of the record declares nothing.
    """
    found = {}
    for name, hint in get_type_hints(record, include_extras=True).items():
        reported = [one for one in getattr(hint, "__metadata__", ()) if isinstance(one, ShownAs | Part)]
        if len(reported) != 1:
            raise TypeError(f"{record.__name__}.{name} declares neither what it is nor where it is shown")
        found[name] = reported[0]
    return found


# --- The walk

# Fields between a part and its entities that nobody needs to tell these apart.
_CONTAINERS = ("students", "ranking", "differences")


class Leaf(NamedTuple):
    """A measure, and where it belongs: ``of`` which task, label or the like it is the ``measure`` of the
    entity ``name``."""

    part: str
    name: str
    measure: str
    of: tuple[str, ...]
    measured: Measured


def named_entries(node: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a record as files name them, or the keys of a mapping: two names are joined by ``|``."""
    if isinstance(node, msgspec.Struct):
        for field in _fields(type(node)):
            if (value := getattr(node, field.name)) is not None or field.default is not None:
                yield field.encode_name, value
    else:
        for key, value in node.items():
            yield "|".join(key) if isinstance(key, tuple) else key, value


def iterate_leaves(
    part: str, node: Any, steps: tuple[str, ...] = (), entity: tuple[str, ...] | None = None
) -> Iterator[Leaf]:
    """All numbers of a part; those that are no measures have neither interval nor n. ``steps`` lead to the
    node from the part, or from its ``entity``, which is what this one's numbers are of, and its name."""
    if entity is None and _is_entity(node):
        entity = (*(step for step in steps[:-1] if step not in _CONTAINERS), "".join(steps[-1:]))
        steps = ()
    match node:
        case Measured() | int() | float() if not isinstance(node, bool):
            measured = node if isinstance(node, Measured) else Measured(node, None, None, None, None)
            *of, name = entity or ("",)
            where, measure = (part, steps[0]) if steps else ("run", part)
            yield Leaf(where, name, measure, (*of, *steps[1:]), measured)
        case (float() as low, float() as high) if steps and steps[-1].startswith("ci95"):
            yield from iterate_leaves(part, Measured(None, low, high, None, None), steps, entity)
        case msgspec.Struct() | Mapping():
            for name, inner in named_entries(node):
                yield from iterate_leaves(part, inner, (*steps, name), entity)


def part_to_json(node: Any, *, inside: bool = False) -> Any:
    """A part as ``measures.json`` has it: an entity's measures are numbers, and ``n``, ``missing`` and
    ``ci95`` (``[low, high]``) stand beside them with the same nested keys."""
    match node:
        case Measured():
            return node.value
        case msgspec.Struct() | Mapping():
            entity = not inside and _is_entity(node)
            plain = {name: part_to_json(one, inside=inside or entity) for name, one in named_entries(node)}
            if entity and _holds_measures(node):
                plain |= {beside: _beside(node, beside) for beside in ("n", "missing", "ci95")}
            return plain
        case list() | tuple():
            return [part_to_json(one, inside=inside) for one in node]
        case _:
            return node


def _beside(node: Any, beside: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, part in named_entries(node):
        if isinstance(part, Measured):
            found[name] = _bounds(part) if beside == "ci95" else getattr(part, beside)
        elif isinstance(part, msgspec.Struct | Mapping) and (part == {} or _holds_measures(part)):
            found[name] = _beside(part, beside)
    return found


def _bounds(found: Measured) -> list[float] | None:
    return None if found.low is None or found.high is None else [found.low, found.high]


def _holds_measures(node: Any) -> bool:
    return any(
        isinstance(part, Measured) or (isinstance(part, msgspec.Struct | Mapping) and _holds_measures(part))
        for _, part in named_entries(node)
    )


def _is_entity(node: Any) -> bool:
    return isinstance(node, Entity | ModelTasks)


@cache
def _fields(record: type[msgspec.Struct]) -> Iterable[msgspec.structs.FieldInfo]:
    return msgspec.structs.fields(record)
