"""Folders whose students are compared, read as the sides of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from coeval.analysis.comparison.comparisons import match_sides
from coeval.analysis.comparison.side import Side
from coeval.core.errors import UsageError
from coeval.core.options import STUDENTS
from coeval.pipeline.plan.run_reading import open_folder_reader
from coeval.pipeline.upkeep.repair import find_missing_records
from coeval.store.output_folder import require_results
from coeval.store.rundir import PAIRS, RunDir


@contextmanager
def open_side_groups_and_notes(
    folders: Sequence[str | Path], students: Sequence[str] | None
) -> Iterator[tuple[list[list[Side]], list[str]]]:
    """Yield the sides of a comparison, in groups, and notes on their folders, which stay open; raises as
    `compare`."""
    if isinstance(students, str):
        raise UsageError(f'{STUDENTS} is a list of names; write students=["{students}"]')
    if not folders:
        raise UsageError("there is nothing to compare: name a folder, or several")
    paths = [require_results(Path(folder)) for folder in folders]
    with ExitStack() as stack:
        read = [stack.enter_context(open_folder_reader(folder, is_look=True)) for folder in paths]
        several = len(set(paths)) > 1
        notes = [
            note
            for folder, (reader, more) in zip(paths, read, strict=True)
            for note in (*reader.notes(), *(f"{folder}: {text}" if several else text for text in more))
        ]
        notes += [
            f"{folder}: {note}" if len(paths) > 1 else note
            for folder in dict.fromkeys(paths)
            for lacks in [find_missing_records(RunDir(folder))]
            for note in (*lacks.sentences, *lacks.notes)
        ]
        notes += [
            f"{folder} has pairwise comparisons, which compare leaves out: coeval analyze students --run "
            f"{folder} shows strengths and who wins against whom"
            for folder in dict.fromkeys(paths)
            if RunDir(folder).files(PAIRS)
        ]
        yield match_sides([reader for reader, _ in read], students or ()), notes
