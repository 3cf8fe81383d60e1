"""The record types of measures, what each field declares of itself, and the walk that writes them to files.

Measures are frozen records. Each field says by `ShownAs` what it is and where a reader finds it; JSON
holds every field. The walk follows the records, so a new measure needs no code here.
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
    """A value with its 95% interval; None where it is not defined. ``n``: the items it rests on; ``missing``:
    the (answer, factor, judge) scores that it lacks."""

    value: float | None
    low: float | None
    high: float | None
    n: int | None
    missing: int | None

    @classmethod
    def with_bounds(cls, value: float, bounds: Bounds | None, n: int, missing: int) -> Measured:
        """Return a measure with its interval, if any; a NaN value becomes None."""
        if not math.isfinite(value):
            return cls(None, None, None, n, missing)
        low, high = bounds or (None, None)
        return cls(value, low, high, n, missing)

    @classmethod
    def from_interval(cls, interval: Interval, missing: int | None = None) -> Measured:
        return cls(interval.mean, interval.low, interval.high, interval.n, missing)


NOT_MEASURED = Measured(None, None, None, 0, 0)


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
    """What a field of a record is, and where it is shown. ``column`` heads its column on the page and in the
    workbook, ``terminal`` in the terminal. A field with neither is shown ``elsewhere``: in a table or
    section of that name, or in `FILES`."""

    meaning: str
    column: str = ""
    terminal: str = ""
    kind: FigureKind = "points"
    elsewhere: str = ""

    @property
    def places(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.column, self.terminal, self.elsewhere)))


class Part(NamedTuple):
    """What a part of all measures is, and which analyses show it; ``all`` shows every part but ``items``."""

    meaning: str
    analyses: tuple[Analysis, ...] = ()


class Record(msgspec.Struct, frozen=True):
    """Measures that belong together. A field whose default is None is left out of files while it is None."""


class Entity(Record, frozen=True):
    """All measures of one thing, often with a name. In JSON, ``n``, ``missing`` and ``ci95`` are added beside
    them, each with the same nested keys; in CSV the name has a column."""


class ModelTasks(dict[str, Mapping[str, _Figure]]):
    """Figures of one model by task and metric: an `Entity` whose fields are tasks. ``units`` holds the unit
    of each (task, metric); an absent one is ``share``."""

    units: Mapping[tuple[str, str], str] = MappingProxyType({})


@cache
def field_declarations(record: type[Record]) -> dict[str, ShownAs | Part]:
    """Return each field's `ShownAs` or `Part`. Raises TypeError: a field declares neither, or several."""
    declarations = {}
    for name, hint in get_type_hints(record, include_extras=True).items():
        shown_as = [item for item in getattr(hint, "__metadata__", ()) if isinstance(item, ShownAs | Part)]
        if len(shown_as) != 1:
            raise TypeError(f"{record.__name__}.{name} declares neither what it is nor where it is shown")
        declarations[name] = shown_as[0]
    return declarations


# --- The walk

# Fields between a part and its entities that add nothing to an entity's name.
_CONTAINERS = ("students", "ranking", "differences")


class Leaf(NamedTuple):
    """A measure and its address: the ``measure`` of the entity ``name`` in ``part``, at the keys ``of``."""

    part: str
    name: str
    measure: str
    of: tuple[str, ...]
    measured: Measured


def named_entries(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield a record's fields as files name them, or a mapping's keys; a pair of names is joined by ``|``."""
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
    """Yield all numbers of a part; plain numbers get neither interval nor n. ``steps``: the keys from the
    part, or from the enclosing ``entity``, to this node."""
    if entity is None and _is_entity(node):
        entity = (*(step for step in steps[:-1] if step not in _CONTAINERS), "".join(steps[-1:]))
        steps = ()
    match node:
        case Measured() | int() | float() if not isinstance(node, bool):
            measured = node if isinstance(node, Measured) else Measured(node, None, None, None, None)
            *keys, name = entity or ("",)
            top, measure = (part, steps[0]) if steps else ("run", part)
            yield Leaf(top, name, measure, (*keys, *steps[1:]), measured)
        case (float() as low, float() as high) if steps and steps[-1].startswith("ci95"):
            yield from iterate_leaves(part, Measured(None, low, high, None, None), steps, entity)
        case msgspec.Struct() | Mapping():
            for name, inner in named_entries(node):
                yield from iterate_leaves(part, inner, (*steps, name), entity)


def part_to_json(node: Any, *, in_entity: bool = False) -> Any:
    """Return a part as ``measures.json`` has it: an entity's measures become numbers, and ``n``, ``missing``
    and ``ci95`` (``[low, high]``) are added with the same nested keys."""
    match node:
        case Measured():
            return node.value
        case msgspec.Struct() | Mapping():
            entity = not in_entity and _is_entity(node)
            plain = {
                name: part_to_json(inner, in_entity=in_entity or entity)
                for name, inner in named_entries(node)
            }
            if entity and _holds_measures(node):
                plain |= {kind: _collect_field_of_measures(node, kind) for kind in ("n", "missing", "ci95")}
            return plain
        case list() | tuple():
            return [part_to_json(inner, in_entity=in_entity) for inner in node]
        case _:
            return node


def _collect_field_of_measures(node: Any, field_name: str) -> dict[str, Any]:
    counts: dict[str, Any] = {}
    for name, part in named_entries(node):
        if isinstance(part, Measured):
            ends = None if part.low is None or part.high is None else [part.low, part.high]
            counts[name] = ends if field_name == "ci95" else getattr(part, field_name)
        elif isinstance(part, msgspec.Struct | Mapping) and (part == {} or _holds_measures(part)):
            counts[name] = _collect_field_of_measures(part, field_name)
    return counts


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
