"""A run's measures as the tables of its results: students, labels, pairs, people, several answers."""

from __future__ import annotations

from collections.abc import Iterator

from coeval.analysis.measures.label_measures import Labels
from coeval.analysis.measures.measure_rows import measure_row
from coeval.analysis.measures.pair_measures import PairMeasures
from coeval.analysis.measures.run_measures import RunMeasures
from coeval.analysis.measures.student_measures import StudentMeasures
from coeval.analysis.people.people_measures import PeopleMeasures
from coeval.analysis.planned_names import Planned, find_removed_names
from coeval.analysis.sampled_answers import WHOLE, SamplesByPart
from coeval.core.html_table import MeasureRow


def student_rows(measures: RunMeasures, planned: Planned | None) -> tuple[MeasureRow, ...]:
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
    return tuple(sorted(rows, key=_student_sort_key))


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


def pair_rows(pairs: PairMeasures | None) -> tuple[MeasureRow, ...]:
    """Return students by comparisons of pairs, the strongest first."""
    students = pairs.students.items() if pairs is not None else ()
    return tuple(measure_row(student, student=name) for name, student in students)


def people_rows(people: PeopleMeasures | None) -> tuple[MeasureRow, ...]:
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


def _student_sort_key(row: MeasureRow) -> tuple[bool, bool, str, bool, bool, bool, float, str]:
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
