"""Comparing what stands in folders: runs, students of a run, output folders of ``eval-framework``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from coeval.api.run_handle import Run
from coeval.core.errors import UsageError
from coeval.core.options import STUDENTS
from coeval.core.process_limits import need_address_space
from coeval.pipeline.existing_run import existing_results
from coeval.pipeline.upkeep.quick_look import look_for_gaps
from coeval.store.rundir import RunDir

if TYPE_CHECKING:
    from coeval.analysis.comparison.comparison_report import ComparisonReport


def compare(*folders: Run | str | Path, students: Sequence[str] | None = None) -> ComparisonReport:
    """Whether one is better than another on the same items, and how sure that is: docs/compare.md.

    Nobody is asked, and nothing is written.

    Parameters
    ----------
    folders:
        runs or output folders of ``eval-framework``, opened or as paths. Of a single one, its students are
        compared; of several, each is held against the others.
    students:
        of one folder, these students of it, two at least; of several, the student of each, or one for all.

    Raises
    ------
    UsageError
        a folder is none of ours, there are no two to compare, or nothing that both have scores of.
    StoreError
        a file cannot be read at all.
    """
    if isinstance(students, str):
        raise UsageError(f'{STUDENTS} is a list of names; write students=["{students}"]')
    if not folders:
        raise UsageError("there is nothing to compare: name a folder, or several")
    found = [existing_results(one.path if isinstance(one, Run) else Path(one)) for one in folders]
    need_address_space()
    # Here, because they load duckdb and numpy.
    from coeval.analysis.comparison.comparisons import compare_sides
    from coeval.analysis.comparison.line_up import line_up
    from coeval.pipeline.plan.run_reading import opened

    with ExitStack() as stack:
        read = [stack.enter_context(opened(folder)) for folder in found]
        notes = [note for reader, more in read for note in (*reader.notes(), *more)]
        notes += _mixed(found)
        return compare_sides(line_up([reader for reader, _ in read], students or ()), notes)


def _mixed(folders: Sequence[Path]) -> Iterator[str]:
    """Which of the runs hold records of another configuration."""
    runs = [RunDir(folder) for folder in dict.fromkeys(folders) if RunDir(folder).is_run()]
    for run in runs:
        for note in look_for_gaps(run).notes:
            yield f"{run.path}: {note}" if len(folders) > 1 else note
