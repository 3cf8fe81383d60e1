"""What a large run's files held when they were last read, kept for the next process.

Reading a million records takes seconds, and hashing their files a tenth of that. So what `Recorded` made of
files is kept in the user's cache folder, with the SHA-256 of each. It is taken for theirs while every byte of
them is the same, and the code that read them too; else they are read.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import time
from array import array
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from coeval import __version__
from coeval.core.errors import StoreError, Undecodable
from coeval.core.foreign import decode
from coeval.core.plain_file import file_bytes, open_file
from coeval.core.text import digest
from coeval.pipeline.config.schema import PHASES
from coeval.pipeline.plan.record_entry import Entry, EvaluationEntry
from coeval.pipeline.plan.recorded import Recorded
from coeval.store.cache_folder import cache_folder
from coeval.store.jsonl import write_bytes_atomic
from coeval.store.record_index import PhaseIndex
from coeval.store.rundir import RunDir

log = logging.getLogger("coeval")

SMALLEST = 1 << 26
"""Bytes of records: fewer are read as quickly."""
_KEPT_DAYS = 30
_SUM = hashlib.sha256().digest_size

EntryT = TypeVar("EntryT", Entry, EvaluationEntry)


class _Stamp(NamedTuple):
    """A file of records as it stands; ``name`` is that in the run's folder."""

    name: str
    bytes: int
    mtime_ns: int


class _KeptColumn(msgspec.Struct, frozen=True, array_like=True):
    """A `RecordColumn`: its rows and positions, and what is remembered of each by its number, in arrays."""

    end: str
    rows: bytes
    entries: bytes
    positions: bytes
    moved: dict[int, int]
    in_vain: dict[int, int]


class _KeptPhase(msgspec.Struct, frozen=True, array_like=True):
    paths: list[str]
    columns: list[_KeptColumn]


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """What `Recorded` holds of sound files: ``sizes`` and ``sums`` of them by name in the run's folder."""

    code: str
    sizes: dict[str, int]
    sums: dict[str, str]
    items: list[str]
    entries: list[Entry]
    verdicts: list[EvaluationEntry]
    phases: list[_KeptPhase]
    attributes: list[dict[str, str]]
    teachers: list[tuple[str, str, bytes, bytes]]
    scored: set[tuple[str, str]]


class RunRecords:
    """The records of a run's phases 3–5, read once; what is kept of them is of use to the next process."""

    def __init__(self, folder: RunDir) -> None:
        self._folder = folder
        self._before = self._stamps()
        self._place = _place(folder) if sum(stamp.bytes for stamp in self._before) >= SMALLEST else None
        self._is_kept = False

    def read(self) -> Recorded:
        """All of them: as they were kept if no file has changed since, else from the files.

        Raises
        ------
        StoreError
            a file cannot be read.
        """
        kept = self._kept()
        if kept is None:
            return Recorded().read(self._folder)
        self._is_kept = True
        return _restored(kept, self._folder)

    def keep(self, recorded: Recorded) -> None:
        """Keep what `read` gave, unless files have changed meanwhile or hold what is damaged or in doubt."""
        if self._place is None or self._is_kept or recorded.damaged or recorded.doubtful:
            return
        try:
            sums = self._sums()
            if self._stamps() != self._before:
                return
            payload = msgspec.json.encode(_to_keep(recorded, self._folder, self._before, sums))
            write_bytes_atomic(self._place, hashlib.sha256(payload).digest() + payload)
            _forget_old(self._place.parent)
        except (StoreError, OSError) as error:
            log.info("what was read of %s is not kept: %s", self._folder.path, error)

    def _kept(self) -> _Kept | None:
        """What was kept of these very files; None where that is not so, or it cannot be read."""
        try:
            data = file_bytes(self._place) if self._place is not None else b""
            if hashlib.sha256(memoryview(data)[_SUM:]).digest() != data[:_SUM]:
                return None
            kept = decode(data[_SUM:], _Kept)
            same = kept.code == _code() and kept.sizes == {name: size for name, size, _ in self._before}
            return kept if same and kept.sums == self._sums() else None
        except (OSError, Undecodable):
            return None

    def _stamps(self) -> list[_Stamp]:
        """Those of all files; none where one cannot be looked at, which their reader tells of."""
        try:
            files = [path for phase in PHASES[2:] for path in self._folder.files(phase)]
            return [
                _Stamp(_name(path, self._folder), (s := path.stat()).st_size, s.st_mtime_ns) for path in files
            ]
        except OSError:
            return []

    def _sums(self) -> dict[str, str]:
        """The SHA-256 of each file."""
        sums = {}
        for stamp in self._before:
            with open_file(self._folder.path / stamp.name) as file:
                sums[stamp.name] = hashlib.file_digest(file, "sha256").hexdigest()
        return sums


# --- what is kept ------------------------------------------------------------------------------


def _to_keep(recorded: Recorded, folder: RunDir, stamps: Sequence[_Stamp], sums: dict[str, str]) -> _Kept:
    entries: dict[Entry, int] = {}
    verdicts: dict[EvaluationEntry, int] = {}
    phases = [
        _phase(recorded.items, entries, folder),
        _phase(recorded.responses, entries, folder),
        _phase(recorded.evaluations, verdicts, folder),
    ]
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
    return _Kept(
        code=_code(),
        sizes={stamp.name: stamp.bytes for stamp in stamps},
        sums=sums,
        items=list(recorded.rows),
        entries=list(entries),
        verdicts=list(verdicts),
        phases=phases,
        attributes=shared,
        teachers=teachers,
        scored=recorded.scored,
    )


def _name(path: Path, folder: RunDir) -> str:
    return str(path.relative_to(folder.path))


def _phase(index: PhaseIndex[EntryT], numbers: dict[EntryT, int], folder: RunDir) -> _KeptPhase:
    """``numbers`` takes in the entries of the phase."""
    columns = []
    for end, column in index.columns.items():
        entries = array("I", (numbers.setdefault(entry, len(numbers)) for entry in column.entries.values()))
        rows, positions = array("I", column.entries), column.positions
        kept = (end, rows.tobytes(), entries.tobytes(), positions.tobytes(), column.moved, column.in_vain)
        columns.append(_KeptColumn(*kept))
    return _KeptPhase([_name(path, folder) for path in index.files.paths], columns)


def _restored(kept: _Kept, folder: RunDir) -> Recorded:
    recorded = Recorded()
    recorded.rows.update(zip(kept.items, range(len(kept.items)), strict=True))
    items, responses, evaluations = kept.phases
    _restore(recorded.items, items, kept.entries, folder)
    _restore(recorded.responses, responses, kept.entries, folder)
    _restore(recorded.evaluations, evaluations, kept.verdicts, folder)
    for task, teacher, rows, numbers in kept.teachers:
        keys = map(kept.items.__getitem__, _array("I", rows))
        attributes = map(kept.attributes.__getitem__, _array("I", numbers))
        recorded.by_teacher[task, teacher] = dict(zip(keys, attributes, strict=True))
    recorded.scored = kept.scored
    return recorded


def _restore(
    index: PhaseIndex[EntryT], phase: _KeptPhase, remembered: Sequence[EntryT], folder: RunDir
) -> None:
    index.files.paths += [folder.path / name for name in phase.paths]
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


# --- where ---------------------------------------------------------------------------------------


def _place(folder: RunDir) -> Path | None:
    """Where what a folder holds is kept; None where the user has no folder of their own."""
    try:
        return cache_folder() / "records" / digest(str(folder.path.resolve()))
    except RuntimeError:
        return None


def _forget_old(place: Path) -> None:
    """Remove what has not been made anew for a month: its run may be gone."""
    oldest = time.time() - _KEPT_DAYS * 86_400
    for path in place.iterdir():
        if path.stat().st_mtime < oldest:
            path.unlink(missing_ok=True)


@cache
def _code() -> str:
    """What says what is remembered of a line, and how it is written down here."""
    source = Path(__file__).parents[2]
    files = sorted(
        path for part in ("core", "store", "pipeline/plan") for path in source.glob(f"{part}/*.py")
    )
    about = (__version__, msgspec.__version__, sys.version, sys.byteorder)
    return digest(*about, *(path.read_text(encoding="utf-8") for path in files))
