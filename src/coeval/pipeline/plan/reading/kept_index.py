"""How what was read of a run's files is written down, and read back."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from coeval.pipeline.plan.reading.contents import PackedContents
from coeval.pipeline.plan.record_entry import Entry, EvaluationEntry
from coeval.pipeline.plan.recorded import Recorded
from coeval.store.record_files import RecordFiles
from coeval.store.record_index import PhaseIndex
from coeval.store.rundir import RunDir

EntryT = TypeVar("EntryT", Entry, EvaluationEntry)


class KeptFile(msgspec.Struct, frozen=True, array_like=True):
    """A `ReadFile` by its name in the run's folder; ``sum`` is the SHA-256 of its first ``end`` bytes."""

    name: str
    end: int
    whole: bool
    sum: str


class _KeptColumn(msgspec.Struct, frozen=True, array_like=True):
    """A `RecordColumn`: its rows and positions, and what is remembered of each by its number, in arrays."""

    end: str
    rows: bytes
    entries: bytes
    positions: bytes
    moved: dict[int, int]
    in_vain: dict[int, int]


class _KeptPhase(msgspec.Struct, frozen=True, array_like=True):
    files: list[KeptFile]
    columns: list[_KeptColumn]


class KeptIndex(msgspec.Struct, frozen=True, array_like=True):
    """What `Recorded` holds of sound files. ``code`` is that which read them."""

    code: str
    items: list[str]
    entries: list[Entry]
    verdicts: list[EvaluationEntry]
    phases: tuple[_KeptPhase, _KeptPhase, _KeptPhase]
    attributes: list[dict[str, str]]
    teachers: list[tuple[str, str, bytes, bytes]]
    scored: set[tuple[str, str]]
    contents: PackedContents


def to_keep(recorded: Recorded, contents: PackedContents, folder: RunDir, code: str) -> KeptIndex:
    entries: dict[Entry, int] = {}
    verdicts: dict[EvaluationEntry, int] = {}
    phases = (
        _phase(recorded.items, entries, folder),
        _phase(recorded.responses, entries, folder),
        _phase(recorded.evaluations, verdicts, folder),
    )
    attributes: dict[int, int] = {}  # those that are alike are one object
    shared: list[dict[str, str]] = []
    teachers = []
    for (task, teacher), items in recorded.by_teacher.items():
        rows, numbers = array("I", (recorded.rows[item] for item in items)), array("I")
        for each in items.values():
            if id(each) not in attributes:
                attributes[id(each)] = len(shared)
                shared.append(dict(each))
            numbers.append(attributes[id(each)])
        teachers.append((task, teacher, rows.tobytes(), numbers.tobytes()))
    return KeptIndex(
        code=code,
        items=list(recorded.rows),
        entries=list(entries),
        verdicts=list(verdicts),
        phases=phases,
        attributes=shared,
        teachers=teachers,
        scored=recorded.scored,
        contents=contents,
    )


def kept_files(files: RecordFiles, folder: RunDir) -> list[KeptFile]:
    """What has been read of each file, where its hash is known."""
    return [
        KeptFile(str(file.path.relative_to(folder.path)), file.end, file.whole, file.sum.hexdigest())
        for file in files.files
        if file.sum is not None
    ]


def _phase(index: PhaseIndex[EntryT], numbers: dict[EntryT, int], folder: RunDir) -> _KeptPhase:
    """``numbers`` takes in the entries of the phase."""
    columns = []
    for end, column in index.columns.items():
        entries = array("I", (numbers.setdefault(entry, len(numbers)) for entry in column.entries.values()))
        rows, positions = array("I", column.entries), column.positions
        kept = (end, rows.tobytes(), entries.tobytes(), positions.tobytes(), column.moved, column.in_vain)
        columns.append(_KeptColumn(*kept))
    return _KeptPhase(kept_files(index.files, folder), columns)


def restored(kept: KeptIndex) -> Recorded:
    """The index as it was; what files have been read of it is not yet in it.

    Raises
    ------
    ValueError, LookupError
        it was not written by `to_keep`.
    """
    recorded = Recorded(goes_on=True)
    recorded.rows.update(zip(kept.items, range(len(kept.items)), strict=True))
    items, responses, evaluations = kept.phases
    _restore(recorded.items, items, kept.entries)
    _restore(recorded.responses, responses, kept.entries)
    _restore(recorded.evaluations, evaluations, kept.verdicts)
    for task, teacher, rows, numbers in kept.teachers:
        keys = map(kept.items.__getitem__, _array("I", rows))
        attributes = map(kept.attributes.__getitem__, _array("I", numbers))
        recorded.by_teacher[task, teacher] = dict(zip(keys, attributes, strict=True))
    recorded.scored, recorded.contents = kept.scored, kept.contents
    return recorded


def _restore(index: PhaseIndex[EntryT], phase: _KeptPhase, remembered: Sequence[EntryT]) -> None:
    for kept in phase.columns:
        column = index.columns[kept.end]
        entries = map(remembered.__getitem__, _array("I", kept.entries))
        column.entries.update(zip(_array("I", kept.rows), entries, strict=True))
        column.positions = _array("Q", kept.positions)
        column.moved, column.in_vain = kept.moved, kept.in_vain


def _array(kind: str, data: bytes) -> array[int]:
    found = array(kind)
    found.frombytes(data)
    return found
