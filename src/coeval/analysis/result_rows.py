"""A run's measures as rows of the tables of its results: a column for each figure that a record declares."""

from __future__ import annotations

import types
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from coeval.analysis.measures.label_measures import Labels
from coeval.analysis.measures.measure_tree import NOT_MEASURED, Measured, Record
from coeval.analysis.measures.pair_measures import PairMeasures
from coeval.analysis.measures.run_measures import RunMeasures
from coeval.analysis.measures.student_measures import StudentMeasures
from coeval.analysis.people.people_measures import PeopleMeasures
from coeval.analysis.planned_names import Planned, find_removed_names
from coeval.analysis.sampled_answers import WHOLE, SamplesByPart
from coeval.core.html_table import MeasureRow


def student_overall_and_task_rows(measures: RunMeasures, planned: Planned | None) -> tuple[MeasureRow, ...]:
    """Return overall scores (``task`` None), then those of each task by name; each best first, ties by name.
    Planned students without an answer are included; removed ones come last."""
    removed = {} if measures.removed is None else measures.removed.students
    expected = (planned and planned.students) or frozenset()
    if not any(student.counts_by_task for student in (*measures.students.values(), *removed.values())):
        return ()
    rows = []
    for name, student in {**removed, **measures.students}.items():
        if student.counts_by_task or name in expected:  # else its answers are to no item that is there
            rows.append(_student_row(planned, name, student, None))
        for task in student.counts_by_task or ():
            is_removed = planned is not None and task not in planned.tasks
            rows.append(
                _student_row(planned, name, removed.get(name, student) if is_removed else student, task)
            )
    return tuple(sorted(rows, key=_task_then_score_key))


def _student_row(
    planned: Planned | None, name: str, measures: StudentMeasures, task: str | None
) -> MeasureRow:
    removed = find_removed_names(planned, name, task)
    row = measure_row(measures, task, student=name, task=task, removed=removed)
    return row if task is None else MeasureRow(row, samples=measures.samples, partial=False)


def label_rows(measures: RunMeasures, planned: Planned | None) -> tuple[MeasureRow, ...]:
    """Return accuracies by task, label and student, best first by `Ranking`; removed ones come last."""
    removed: Labels = {} if measures.removed is None else measures.removed.labels
    rows = []
    for labels in (measures.labels, removed):
        for task, attributes in labels.items():
            for attribute, label_measures in attributes.items():
                for student in label_measures.order:
                    label_student = label_measures.students[student]
                    if label_student.accuracy.n or label_student.failed:
                        names = {"task": task, "attribute": attribute, "student": student}
                        gone = find_removed_names(planned, student, task, attribute)
                        rows.append(measure_row(label_student, **names, removed=gone))
    return tuple(sorted(rows, key=lambda row: (bool(row.removed), row.task, row.attribute)))


def compared_student_rows(pairs: PairMeasures | None) -> tuple[MeasureRow, ...]:
    """Return students by comparisons of pairs, the strongest first."""
    students = pairs.students.items() if pairs is not None else ()
    return tuple(measure_row(student, student=name) for name, student in students)


def people_scale_student_rows(people: PeopleMeasures | None) -> tuple[MeasureRow, ...]:
    """Return students' scores on both scales, judges' and people's, best first by people."""
    scale = None if people is None else people.whole_scale
    if people is None or scale is None:
        return ()
    rows = [
        measure_row(student, student=name, scale=people.whole_scale_name)
        for name, student in scale.students.items()
    ]
    return tuple(sorted(rows, key=lambda row: (row.people is None, -(row.people or 0.0), row.student)))


def sample_rows(samples: SamplesByPart | None) -> Iterator[MeasureRow]:
    """Yield results of repeated answers by task, factor and student; ``factor`` None: of whole answers."""
    for (student, task, factor), measures in (samples or {}).items():
        yield measure_row(measures, student=student, task=task, factor=None if factor == WHOLE else factor)


def _task_then_score_key(row: MeasureRow) -> tuple[bool, bool, str, bool, bool, bool, float, str]:
    """Order rows by task, then best first: unscored students last, ties by name; students of some tasks only
    after those of all, removed ones after the rest."""
    return (
        row.task is not None,
        "task" in row.removed,
        row.task or "",
        "student" in row.removed,
        row.score is None,
        row.partial,
        -round(row.score or 0.0, 9),  # as `Ranking.order`
        row.student,
    )


# --- Any record as a row, and back

_Kind = TypeVar("_Kind", bound=Record)

BY_TASK = "_by_task"
"""What ends the name of a field that has, by task, what the field before it has overall."""


class _Field(NamedTuple):
    """A field of a record, and the columns that it fills: a measure several, a record those of its own."""

    name: str
    columns: tuple[str, ...]
    within: type[Record] | None = None


def measure_row(record: Record, of_task: str | None = None, /, **names: object) -> MeasureRow:
    """Build the row of a record: ``names`` come first. ``of_task``: use the values of one task."""
    return MeasureRow(**names, **dict(_row_cells(record, type(record), of_task)))


def record_from_row(row: MeasureRow, record_type: type[_Kind]) -> _Kind:
    """Rebuild a record from the figures of a row; absent figures take their defaults."""
    figures: dict[str, Any] = {}
    for field in _fields(record_type):
        values = [row[column] for column in field.columns]
        without = [None] * (_MEASURED - len(values))
        figures[field.name] = Measured(*values, *without) if len(values) > 1 else values[0]
    return record_type(**figures)


def _row_cells(record: Record | None, kind: type[Record], task: str | None) -> Iterator[tuple[str, Any]]:
    """Yield each column of a record with its value; None where the record, or its value, is None."""
    for field in _fields(kind):
        value = None if record is None else _cell_value(record, field.name, task)
        if field.within is not None:
            yield from _row_cells(value, field.within, None)
            continue
        match value:
            case Measured():
                yield from zip(field.columns, value, strict=False)
            case tuple() if len(field.columns) > 1:
                yield from zip(field.columns, value, strict=True)
            case None if "n" in field.columns:
                yield from zip(field.columns, NOT_MEASURED, strict=True)
            case _ if len(field.columns) == 1:
                yield field.columns[0], value
            case _:
                yield from ((column, None) for column in field.columns)


def _cell_value(record: Record, name: str, task: str | None) -> Any:
    if task is None:
        return getattr(record, name)
    by_task = getattr(record, f"{name}{BY_TASK}", None)
    return None if by_task is None else by_task.get(task)


@cache
def _fields(record: type[Record]) -> tuple[_Field, ...]:
    """List a record's figures with their columns; the first measure gives interval and counts plain names."""
    fields: list[_Field] = []
    for name, hint in get_type_hints(record).items():
        kinds = _types_of_hint(hint)
        if Measured in kinds:
            first = not any(len(field.columns) == _MEASURED for field in fields)
            ends = ("low", "high", "n", "missing") if first else (f"{name}_low", f"{name}_high")
            fields.append(_Field(name, (name, *ends)))
        elif name == "bounds":
            fields.append(_Field(name, ("least", "most")))
        elif inner := [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Record)]:
            fields.append(_Field(name, (), inner[0]))
        elif kinds <= _SCALARS:
            fields.append(_Field(name, (name,)))
    return tuple(fields)


_MEASURED = 5
_SCALARS = {str, int, float, bool, tuple}


def _types_of_hint(hint: Any) -> set[Any]:
    """Return the types that a field may have, other than None."""
    if get_origin(hint) is Annotated:
        return _types_of_hint(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        return {kind for part in get_args(hint) for kind in _types_of_hint(part)} - {types.NoneType}
    return {get_origin(hint) or hint}
