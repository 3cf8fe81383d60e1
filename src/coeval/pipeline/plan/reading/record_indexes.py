"""What is remembered of the records of phases 3–5, found by their ids."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from coeval.pipeline.plan.record_entry import Entry, EvaluationEntry
from coeval.store.record_files import RecordFiles
from coeval.store.record_index import ItemRows, PhaseIndex


class RecordIndexes:
    """Indexes of the three phases."""

    def __init__(self) -> None:
        self.rows = ItemRows()
        """Item id → its row in the columns of all phases."""
        self.items: PhaseIndex[Entry] = PhaseIndex(self.rows, 0)
        self.responses: PhaseIndex[Entry] = PhaseIndex(self.rows, 1)
        self.evaluations: PhaseIndex[EvaluationEntry] = PhaseIndex(self.rows, 2)
        self.by_teacher: dict[tuple[str, str], dict[str, Mapping[str, str]]] = {}
        """(task, teacher) → its items in order of first appearance: id → sampled target attributes."""
        self.scored: set[tuple[str, str]] = set()
        """(task, factor) of all scores on record."""
        self.doubtful = False
        """Whether a line may be no valid record, by what is read of it here, or follow from none."""

    @property
    def files(self) -> tuple[RecordFiles, RecordFiles, RecordFiles]:
        """What has been read of each phase."""
        return self.items.files, self.responses.files, self.evaluations.files

    @property
    def damaged(self) -> list[tuple[Path, int]]:
        """Lines that are no records, by file and offset."""
        return [line for files in self.files for line in files.damaged]
